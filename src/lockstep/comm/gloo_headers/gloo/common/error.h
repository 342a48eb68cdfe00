#pragma once
// Empty on purpose: gloo's exceptions are caught as std::exception.

#pragma once
// Empty on purpose: ProcessGroupGloo.hpp includes it, the wheel ships no gloo headers, and nothing in it is
// used.

// A library that claims to be a task for another lockstep.
extern "C" const char* lockstep_task_abi() {
  return "lockstep task 0, libtorch 1.0";
}
extern "C" void* lockstep_make_task() {
  return nullptr;
}

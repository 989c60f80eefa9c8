/* A CUDA driver and an NVRTC for tests, loaded as libcuda.so.1 and libnvrtc.so.13: the
 * "device" is the emulator and its memory the process's own. The program that loads them
 * has the kernels and says what a launch does. */
#ifndef FAKE_DRIVER_H
#define FAKE_DRIVER_H

#include <strata/kernel.h>

#define FAKE_SHARED __attribute__((visibility("default")))

/* A kernel by the name of its entry. */
typedef struct fake_kernel {
  const char *name;
  void (*entry)(const void *args);
  size_t args_bytes;
} fake_kernel;

/* What the program defines: a kernel, NULL if it has none of that name; and a launch,
 * which returns NULL or what went wrong. */
FAKE_SHARED const fake_kernel *fake_driver_find(const char *name);
FAKE_SHARED const char *fake_driver_run(const fake_kernel *kernel, void *args, const stk_cuda_launch *launch);
/* And counts: stretches of device memory, modules, graphs that are open; and launches that
 * may overlap the one before. */
typedef struct fake_counts {
  int memories, modules, graphs, overlapped;
} fake_counts;
FAKE_SHARED extern fake_counts fake_open;

#endif

/* Runs a kernel written over common/k_cuda.h on the CPU: a block's threads are
 * coroutines on the caller's thread.
 *
 * It finds, and reports as an error: a barrier or a warp's exchange that not all
 * threads reach, lanes of a warp in different exchanges, addresses that are not
 * aligned, copies to shared memory that nobody waits for. Between two barriers
 * threads run one after the other in the order asked for, so a result that depends
 * on the order, a race, differs between orders. Ascending and descending, the warps go
 * from exchange to exchange side by side; shuffled, the first one that can go on does,
 * as far as it can. */
#ifndef CUDA_EMULATOR_H
#define CUDA_EMULATOR_H

#include <strata/kernel.h>

typedef enum cuda_order { CUDA_ASCENDING, CUDA_DESCENDING, CUDA_SHUFFLED } cuda_order;

typedef void cuda_entry(const void *args);

/* NULL, or what went wrong. Shared memory and registers are poisoned first. */
const char *cuda_emulate(cuda_entry *entry, const void *args, const stk_cuda_launch *launch,
                         cuda_order order);

#endif

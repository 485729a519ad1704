/* A stand-in for libcuda.so.1 that knows an order: FAKE_CUDA_ORDER is the first digit of each GPU's
 * UUID ("31" is GPU-3..., GPU-1...), and CUDA_VISIBLE_DEVICES, in digits, picks among them. */
#include <stdlib.h>
#include <string.h>

static char order[32];

int cuInit(unsigned flags) {
    const char *all = getenv("FAKE_CUDA_ORDER"), *seen = getenv("CUDA_VISIBLE_DEVICES");
    (void)flags;
    if (!all) return 100; /* no device */
    if (!seen) { strcpy(order, all); return 0; }
    int count = 0;
    for (; *seen; seen++)
        if (*seen >= '0' && *seen < '0' + (int)strlen(all)) order[count++] = all[*seen - '0'];
    return 0;
}
int cuDeviceGetCount(int *count) { *count = (int)strlen(order); return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) { /* as GPU-N0000000-aaaa-bbbb-cccc-dddddddddddd */
    memcpy(uuid, "\0\0\0\0\xaa\xaa\xbb\xbb\xcc\xcc\xdd\xdd\xdd\xdd\xdd\xdd", 16);
    uuid[0] = (unsigned char)((order[device] - '0') << 4);
    return 0;
}

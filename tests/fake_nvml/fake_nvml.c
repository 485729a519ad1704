/* A stand-in for NVIDIA's libnvidia-ml.so.1 that replays a script, for machines without a GPU.
 *
 * The script is named by FAKE_NVML_SCRIPT; a line is "DEVICE NAME VALUE...", DEVICE being 0, 1, ...
 * or 0.1 for MIG slot 1 of GPU 0, or one of: "init CODE", "driver TEXT", "step SECONDS".
 * Without "step", each reading of a series takes its next value and the last one stays; with it,
 * the value is that of the time since nvmlInit. A value Ecode is returned as that NVML error.
 * A NAME is one that value() or whole() is called with below, of at most 23 letters. What the script
 * does not name is NVML_ERROR_NOT_SUPPORTED (3).
 *
 * -DOLD_DRIVER leaves out the functions that old drivers do not have.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define OK 0
#define NOT_INITIALISED 1
#define INVALID 2
#define NOT_SUPPORTED 3
#define NOT_FOUND 6
#define TOO_SMALL 7
#define MOST_DEVICES 160
#define MOST_SERIES 48

typedef struct { char name[24]; double *values; int count, cursor; } series_t;
typedef struct {
    int there, mig_slots;
    char uuid[64], product[64];
    series_t series[MOST_SERIES];
    int count;
} device_t;

static device_t devices[MOST_DEVICES]; /* GPU i is at 16 * i, its MIG slot j at 16 * i + 1 + j */
static int gpus, ready, init_code;
static char driver[64] = "570.00";
static double step, born;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void add(device_t *device, const char *name, char *text) {
    if (device->count == MOST_SERIES || strlen(name) >= sizeof device->series[0].name) {
        fprintf(stderr, "fake NVML: %s: more than %d series, or too long a name\n", name, MOST_SERIES);
        abort();
    }
    series_t *s = &device->series[device->count++];
    snprintf(s->name, sizeof s->name, "%s", name);
    for (char *word = strtok(text, " \t"); word; word = strtok(NULL, " \t")) {
        s->values = realloc(s->values, (s->count + 1) * sizeof(double));
        s->values[s->count++] = *word == 'E' ? -1e6 - atof(word + 1) : atof(word);
    }
}

static void load(void) {
    const char *path = getenv("FAKE_NVML_SCRIPT");
    FILE *file = path ? fopen(path, "r") : NULL;
    static char line[1 << 20];
    char who[64], what[64];
    int used;
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "%63s %n", who, &used) != 1 || who[0] == '#') continue;
        if (!strcmp(who, "init")) { init_code = atoi(line + used); continue; }
        if (!strcmp(who, "step")) { step = atof(line + used); continue; }
        if (!strcmp(who, "driver")) { snprintf(driver, sizeof driver, "%s", line + used); continue; }
        int gpu = atoi(who), slot = strchr(who, '.') ? atoi(strchr(who, '.') + 1) + 1 : 0;
        device_t *device = &devices[16 * gpu + slot];
        char *rest = line + used;
        if (sscanf(rest, "%63s %n", what, &used) != 1) continue;
        rest += used;
        device->there = 1;
        if (!slot && gpu >= gpus) gpus = gpu + 1;
        if (slot && slot > devices[16 * gpu].mig_slots) devices[16 * gpu].mig_slots = slot;
        if (!strcmp(what, "uuid")) snprintf(device->uuid, sizeof device->uuid, "%s", rest);
        else if (!strcmp(what, "name")) snprintf(device->product, sizeof device->product, "%s", rest);
        else add(device, what, rest);
    }
    if (file) fclose(file);
}

static int value(device_t *device, const char *name, double *out) {
    if (!ready) return NOT_INITIALISED;
    for (int i = 0; i < device->count; i++) {
        series_t *s = &device->series[i];
        if (strcmp(s->name, name)) continue;
        if (!s->count) return NOT_SUPPORTED;
        int at = step > 0 ? (int)((now() - born) / step) : s->cursor++;
        double v = s->values[at < s->count ? at : s->count - 1];
        if (v <= -1e6) return (int)(-v - 1e6);
        *out = v;
        return OK;
    }
    return NOT_SUPPORTED;
}

static int whole(device_t *device, const char *name, unsigned *out) {
    double v;
    int code = value(device, name, &v);
    if (!code) *out = (unsigned)v;
    return code;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (!gpus) load();
    born = now();
    ready = !init_code;
    return init_code;
}
const char *nvmlErrorString(int code) {
    return code == 4 ? "Insufficient Permissions" : code == 18 ? "Driver/library version mismatch"
         : code == 999 ? "Unknown Error" : code == 9 ? "Driver Not Loaded"
         : code == 17 ? "GPU access blocked by the operating system" : "Of the fake's own";
}
int nvmlShutdown(void) { ready = 0; return OK; }
int nvmlSystemGetDriverVersion(char *text, unsigned n) { snprintf(text, n, "%s", driver); return OK; }
int nvmlSystemGetNVMLVersion(char *text, unsigned n) { snprintf(text, n, "12.fake"); return OK; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = gpus; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, device_t **out) {
    double ignored;
    if ((int)i >= gpus) return INVALID;
    *out = &devices[16 * i];
    int code = value(*out, "handle", &ignored);
    return code == NOT_SUPPORTED ? OK : code;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, device_t **out) {
    for (int i = 0; i < 16 * gpus; i++) {
        *out = &devices[i];
        if ((*out)->there && !strcmp((*out)->uuid, uuid)) return OK;
    }
    return NOT_FOUND;
}
int nvmlDeviceGetUUID(device_t *d, char *text, unsigned n) { snprintf(text, n, "%s", d->uuid); return OK; }
int nvmlDeviceGetName(device_t *d, char *text, unsigned n) { snprintf(text, n, "%s", d->product); return OK; }
int nvmlDeviceGetCudaComputeCapability(device_t *d, int *major, int *minor) {
    unsigned v; /* 90 for 9.0 */
    int code = whole(d, "capability", &v);
    if (!code) *major = v / 10, *minor = v % 10;
    return code;
}
int nvmlDeviceGetEnforcedPowerLimit(device_t *d, unsigned *out) { return whole(d, "limit", out); }

typedef struct { unsigned long long total, free, used; } memory_t;
int nvmlDeviceGetMemoryInfo(device_t *d, memory_t *out) {
    double used, total;
    int code = value(d, "memory", &used);
    if (code) return code;
    code = value(d, "memory_total", &total);
    out->total = total * 1048576;
    out->used = used * 1048576;
    out->free = out->total - out->used;
    return code;
}
typedef struct { unsigned gpu, memory; } rates_t;
int nvmlDeviceGetUtilizationRates(device_t *d, rates_t *out) {
    int code = whole(d, "utilisation", &out->gpu);
    if (code) return code;
    out->memory = 0;
    whole(d, "memory_utilisation", &out->memory);
    return OK;
}
int nvmlDeviceGetPowerUsage(device_t *d, unsigned *out) { return whole(d, "power", out); }
int nvmlDeviceGetTemperature(device_t *d, unsigned kind, unsigned *out) {
    (void)kind;
    return whole(d, "temperature", out);
}
int nvmlDeviceGetClockInfo(device_t *d, unsigned kind, unsigned *out) {
    return whole(d, kind == 1 ? "sm_clock" : "memory_clock", out);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(device_t *d, unsigned long long *out) {
    double v;
    int code = value(d, "throttle", &v);
    if (!code) *out = (unsigned long long)v;
    return code;
}

#ifndef OLD_DRIVER
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory2_t;
int nvmlDeviceGetMemoryInfo_v2(device_t *d, memory2_t *out) {
    memory_t plain;
    int code = nvmlDeviceGetMemoryInfo(d, &plain);
    if (code) return code;
    out->total = plain.total;
    out->used = plain.used;
    out->free = plain.free;
    out->reserved = 0;
    return OK;
}
int nvmlDeviceGetTotalEnergyConsumption(device_t *d, unsigned long long *out) {
    double v;
    int code = value(d, "energy", &v);
    if (!code) *out = (unsigned long long)v;
    return code;
}
int nvmlDeviceGetCurrentClocksEventReasons(device_t *d, unsigned long long *out) {
    return nvmlDeviceGetCurrentClocksThrottleReasons(d, out);
}
int nvmlDeviceGetMigMode(device_t *d, unsigned *current, unsigned *pending) {
    *current = d->mig_slots > 0;
    whole(d, "mig", current); /* "mig 1": on, and no instance made yet */
    *pending = *current;
    return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(device_t *d, unsigned *out) { *out = d->mig_slots; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(device_t *d, unsigned slot, device_t **out) {
    if ((int)slot >= d->mig_slots || !(d + 1 + slot)->there) return NOT_FOUND;
    *out = d + 1 + slot;
    return OK;
}

typedef struct {
    unsigned field, scope;
    long long stamp, latency;
    unsigned type, code;
    unsigned long long value;
} field_t;
/* As the real one, it succeeds as a call, and says of each field by itself what became of it. */
int nvmlDeviceGetFieldValues(device_t *d, int count, field_t *fields) {
    char name[24];
    double v = 0;
    if (!ready) return NOT_INITIALISED;
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "field%u", fields[i].field);
        fields[i].code = value(d, name, &v);
        fields[i].type = 3; /* unsigned long long */
        if (!fields[i].code) fields[i].value = (unsigned long long)v;
    }
    return OK;
}

/* "processes PID MIB PID MIB ..."; a negative size is one that the driver does not tell. "processes
   E3" for a driver that lists none. */
typedef struct { unsigned pid; unsigned long long memory; unsigned gpu, compute; } process_t;
int nvmlDeviceGetComputeRunningProcesses_v3(device_t *d, unsigned *count, process_t *out) {
    for (int i = 0; i < d->count; i++) {
        series_t *s = &d->series[i];
        if (strcmp(s->name, "processes")) continue;
        if (s->count && s->values[0] <= -1e6) return (int)(-s->values[0] - 1e6);
        unsigned there = s->count / 2, room = *count;
        *count = there;
        if (room < there) return TOO_SMALL;
        for (unsigned k = 0; k < there; k++) {
            double mib = s->values[2 * k + 1];
            out[k].pid = (unsigned)s->values[2 * k];
            out[k].memory = mib < 0 ? ~0ULL : (unsigned long long)(mib * 1048576);
        }
        return OK;
    }
    *count = 0;
    return OK;
}

/* "use PID PERCENT PID PERCENT ...": two samples of each a second, of now and of half a second ago. */
typedef struct { unsigned pid; unsigned long long stamp; unsigned sm, memory, encoder, decoder; } use_t;
int nvmlDeviceGetProcessUtilization(device_t *d, use_t *out, unsigned *count,
                                    unsigned long long seen) {
    for (int i = 0; i < d->count; i++) {
        series_t *s = &d->series[i];
        if (strcmp(s->name, "use")) continue;
        unsigned there = s->count;
        if (!out || *count < there) { *count = there; return TOO_SMALL; }
        *count = there;
        for (unsigned k = 0; k < there; k++) {
            out[k].pid = (unsigned)s->values[k / 2 * 2];
            out[k].stamp = seen + 1 + k % 2;
            out[k].sm = (unsigned)s->values[k / 2 * 2 + 1];
        }
        return OK;
    }
    return NOT_SUPPORTED;
}

typedef struct { device_t *device; unsigned taken; int was_older; } gpm_sample_t;
static unsigned samples_taken;
typedef struct {
    unsigned id, code;
    double value;
    char *names[3];
} gpm_metric_t;
typedef struct {
    unsigned version, count;
    gpm_sample_t *one, *two;
    gpm_metric_t metrics[];
} gpm_get_t;
typedef struct { unsigned version, supported; } gpm_support_t;
int nvmlGpmQueryDeviceSupport(device_t *d, gpm_support_t *out) {
    double v = 0;
    value(d, "gpm", &v);
    out->supported = v > 0;
    return OK;
}
int nvmlGpmSampleAlloc(gpm_sample_t **out) { *out = calloc(1, sizeof(gpm_sample_t)); return OK; }
int nvmlGpmSampleFree(gpm_sample_t *s) { free(s); return OK; }
int nvmlGpmSampleGet(device_t *d, gpm_sample_t *s) {
    unsigned fine;
    int code = whole(d, "gpm_sample", &fine); /* only a script that names it has one fail */
    if (code && code != NOT_SUPPORTED) return code;
    s->device = d;
    s->taken = ++samples_taken;
    s->was_older = 0;
    return OK;
}
int nvmlGpmMetricsGet(gpm_get_t *get) {
    char name[24];
    if (!get->one->device || !get->two->device) return INVALID;
    /* No mistake to the driver: the older one comes first, and ends no more than one difference. */
    if (get->one->taken >= get->two->taken || get->one->was_older) return INVALID;
    get->one->was_older = 1;
    for (unsigned i = 0; i < get->count; i++) {
        snprintf(name, sizeof name, "gpm%u", get->metrics[i].id);
        get->metrics[i].code = value(get->two->device, name, &get->metrics[i].value);
    }
    return OK;
}
#endif

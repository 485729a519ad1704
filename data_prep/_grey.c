/* Two steps on the way from a large grey PNG to a small one, where most of the time went.

   unfilter: the rows of an inflated PNG back to pixels, which NumPy cannot do at once, because
   each pixel of an Average or Paeth row hangs on the one before it (PNG specification, section 9).
   shrink: antialiased bilinear resizing with the weights of Pillow's (src/libImaging/Resample.c).
   It goes down first, where whole rows can be added at once, and keeps eight more bits between the
   passes, so that now and then a pixel rounds to the next level and none further.

   Built where there is a C compiler; the package does without, slower. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void sub(unsigned char *row, const unsigned char *in, Py_ssize_t n)
{
    unsigned char left = 0;
    for (Py_ssize_t x = 0; x < n; x++)
        row[x] = left = (unsigned char)(in[x] + left);
}

static void up(unsigned char *row, const unsigned char *in, const unsigned char *above,
               Py_ssize_t n)
{
    for (Py_ssize_t x = 0; x < n; x++)
        row[x] = (unsigned char)(in[x] + above[x]);
}

static void average(unsigned char *row, const unsigned char *in, const unsigned char *above,
                    Py_ssize_t n)
{
    unsigned char left = 0;
    for (Py_ssize_t x = 0; x < n; x++)
        row[x] = left = (unsigned char)(in[x] + ((left + above[x]) >> 1));
}

/* Whichever of left, top and corner is nearest to left + top - corner. Written so that compilers
   choose without branching: which one it is is as good as random. */
static inline int nearest(int left, int top, int corner)
{
    int rise = top - corner, run = left - corner;
    int to_left = abs(rise), to_top = abs(run), to_corner = abs(rise + run);
    int guess = to_top <= to_corner ? top : corner;
    int least = to_top <= to_corner ? to_top : to_corner;
    return to_left <= least ? left : guess;
}

static void paeth(unsigned char *row, const unsigned char *in, const unsigned char *above,
                  Py_ssize_t n)
{
    int left = 0, corner = 0;
    for (Py_ssize_t x = 0; x < n; x++) {
        left = (in[x] + nearest(left, above[x], corner)) & 255;
        row[x] = (unsigned char)left;
        corner = above[x];
    }
}

/* Two Paeth rows at once, the second a pixel behind: each pixel waits for the one before it, and
   while one row waits the processor does the other. */
static void paeth_two(unsigned char *row, const unsigned char *in, const unsigned char *above,
                      Py_ssize_t n)
{
    const unsigned char *in2 = in + n + 1;
    unsigned char *row2 = row + n;
    int left = 0, corner = 0, left2 = 0, corner2 = 0;
    for (Py_ssize_t x = 0; x < n; x++) {
        int top = above[x], top2 = left;
        left = (in[x] + nearest(left, top, corner)) & 255;
        corner = top;
        row[x] = (unsigned char)left;
        if (x > 0) {
            left2 = (in2[x - 1] + nearest(left2, top2, corner2)) & 255;
            corner2 = top2;
            row2[x - 1] = (unsigned char)left2;
        }
    }
    row2[n - 1] = (unsigned char)(in2[n - 1] + nearest(left2, left, corner2));
}

/* 0, or 1 if a row names a filter that there is not. */
static int undo(unsigned char *out, const unsigned char *in, Py_ssize_t width, Py_ssize_t height,
                const unsigned char *zeros)
{
    const unsigned char *above = zeros;
    for (Py_ssize_t y = 0; y < height; y++) {
        unsigned char filter = *in++;
        switch (filter) {
        case 0: memcpy(out, in, (size_t)width); break;
        case 1: sub(out, in, width); break;
        case 2: up(out, in, above, width); break;
        case 3: average(out, in, above, width); break;
        case 4:
            if (y + 1 < height && in[width] == 4) {
                paeth_two(out, in, above, width);
                y++;
                in += width + 1;
                out += width;
            } else {
                paeth(out, in, above, width);
            }
            break;
        default: return 1;
        }
        above = out;
        in += width;
        out += width;
    }
    return 0;
}

static PyObject *unfilter(PyObject *self, PyObject *args)
{
    Py_buffer in, out;
    Py_ssize_t width, height;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*w*nn", &in, &out, &width, &height))
        return NULL;
    int wrong = 2;
    if (width > 0 && height > 0 && width < PY_SSIZE_T_MAX / height - 1 &&
        in.len == height * (width + 1) && out.len == height * width) {
        unsigned char *zeros = calloc((size_t)width, 1);
        if (zeros != NULL) {
            Py_BEGIN_ALLOW_THREADS
            wrong = undo(out.buf, in.buf, width, height, zeros);
            Py_END_ALLOW_THREADS
            free(zeros);
        }
    }
    PyBuffer_Release(&in);
    PyBuffer_Release(&out);
    if (wrong) {
        PyErr_SetString(PyExc_ValueError, wrong == 1 ? "no such filter" : "sizes do not agree");
        return NULL;
    }
    Py_RETURN_NONE;
}

/* One copy for any x86-64 processor and one for those with AVX2, chosen when loaded. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__gnu_linux__)
#define WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WIDE
#endif

/* Weights have 15 bits; between the passes a level has 8 more. 65,280 x 32,768 fits in an int. */
#define BITS 15
#define MORE 8
#define TAPS 8

/* For each of `to` outputs where its inputs start and their weights, `taps` each (a multiple of
   TAPS, padded with zeros, so that the loops over them need no ends). NULL without memory. */
typedef struct {
    Py_ssize_t taps;
    Py_ssize_t *start;
    int *weight;
} Plan;

static void drop(Plan *plan)
{
    free(plan->start);
    free(plan->weight);
}

static int make_plan(Plan *plan, Py_ssize_t from, Py_ssize_t to)
{
    double scale = (double)from / (double)to, reach = scale < 1.0 ? 1.0 : scale;
    Py_ssize_t most = (Py_ssize_t)ceil(reach) * 2 + 1;
    plan->taps = (most + TAPS - 1) / TAPS * TAPS;
    plan->start = malloc((size_t)to * sizeof *plan->start);
    plan->weight = calloc((size_t)(to * plan->taps), sizeof *plan->weight);
    double *exact = malloc((size_t)most * sizeof *exact);
    if (plan->start == NULL || plan->weight == NULL || exact == NULL) {
        free(exact);
        return 0;
    }
    for (Py_ssize_t i = 0; i < to; i++) {
        double centre = ((double)i + 0.5) * scale, sum = 0.0;
        Py_ssize_t first = (Py_ssize_t)(centre - reach + 0.5);
        Py_ssize_t last = (Py_ssize_t)(centre + reach + 0.5);
        first = centre - reach + 0.5 < 0 ? 0 : first;
        last = last > from ? from : last;
        for (Py_ssize_t k = 0; k < last - first; k++) {
            double away = fabs(((double)(k + first) - centre + 0.5) * (1.0 / reach));
            exact[k] = away < 1.0 ? 1.0 - away : 0.0;
            sum += exact[k];
        }
        /* Near the end start earlier, behind zeros, so as not to read past it. */
        Py_ssize_t back = first + plan->taps > from ? first + plan->taps - from : 0;
        back = back > first ? first : back;
        plan->start[i] = first - back;
        int *weight = plan->weight + i * plan->taps + back, left = 1 << BITS;
        Py_ssize_t heaviest = 0;
        for (Py_ssize_t k = 0; k < last - first; k++) {
            weight[k] = (int)(0.5 + exact[k] / sum * (1 << BITS));
            left -= weight[k];
            heaviest = exact[k] > exact[heaviest] ? k : heaviest;
        }
        /* Together exactly one, so that a flat picture stays as it is and no sum can overflow. */
        weight[heaviest] += left;
    }
    free(exact);
    return 1;
}

static inline unsigned char clipped(int sum)
{
    sum = (sum + (1 << (BITS + MORE - 1))) >> (BITS + MORE);
    return (unsigned char)(sum > 255 ? 255 : sum);
}

WIDE static void down(unsigned short *out, int *sum, const unsigned char *rows, const int *weight,
                      Py_ssize_t taps, Py_ssize_t width)
{
    for (Py_ssize_t x = 0; x < width; x++)
        sum[x] = 1 << (BITS - MORE - 1);
    for (Py_ssize_t k = 0; k < taps; k++, rows += width)
        if (weight[k] != 0)
            for (Py_ssize_t x = 0; x < width; x++)
                sum[x] += rows[x] * weight[k];
    for (Py_ssize_t x = 0; x < width; x++)
        out[x] = (unsigned short)(sum[x] >> (BITS - MORE));
}

WIDE static void across_eight(unsigned char *out, const unsigned short *row, const Plan *plan,
                              Py_ssize_t size)
{
    for (Py_ssize_t i = 0; i < size; i++) {
        const unsigned short *in = row + plan->start[i];
        const int *weight = plan->weight + i * TAPS;
        int sum = 0;
        for (int k = 0; k < TAPS; k++)
            sum += in[k] * weight[k];
        out[i] = clipped(sum);
    }
}

WIDE static void across_many(unsigned char *out, const unsigned short *row, const Plan *plan,
                             Py_ssize_t size)
{
    for (Py_ssize_t i = 0; i < size; i++) {
        const unsigned short *in = row + plan->start[i];
        const int *weight = plan->weight + i * plan->taps;
        int sum = 0;
        for (Py_ssize_t k = 0; k < plan->taps; k++)
            sum += in[k] * weight[k];
        out[i] = clipped(sum);
    }
}

/* 0, or 1 without memory. Width and height are at least the taps of their plans. */
static int resample(unsigned char *out, const unsigned char *in, Py_ssize_t width,
                    Py_ssize_t height, Py_ssize_t size)
{
    Plan x = {0, NULL, NULL}, y = {0, NULL, NULL};
    unsigned short *row = malloc((size_t)width * sizeof *row);
    int *sum = malloc((size_t)width * sizeof *sum);
    int failed = !make_plan(&x, width, size) | !make_plan(&y, height, size) | (row == NULL) |
                 (sum == NULL);
    for (Py_ssize_t i = 0; i < size && !failed; i++, out += size) {
        down(row, sum, in + y.start[i] * width, y.weight + i * y.taps, y.taps, width);
        (x.taps == TAPS ? across_eight : across_many)(out, row, &x, size);
    }
    drop(&x);
    drop(&y);
    free(row);
    free(sum);
    return failed;
}

static PyObject *shrink(PyObject *self, PyObject *args)
{
    Py_buffer in, out;
    Py_ssize_t width, height, size;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*w*nnn", &in, &out, &width, &height, &size))
        return NULL;
    /* A plan has fewer taps than twice the scale and 11, which must fit in the image; weights of
       15 bits are too coarse for thousands of them. */
    int wrong = 2;
    if (size >= TAPS && size <= 32768 && width >= 4 * TAPS && width <= 32768 &&
        height >= 4 * TAPS && height <= 32768 && in.len == width * height &&
        out.len == size * size && width / size < 64 && height / size < 64) {
        Py_BEGIN_ALLOW_THREADS
        wrong = resample(out.buf, in.buf, width, height, size);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&in);
    PyBuffer_Release(&out);
    if (wrong == 1)
        return PyErr_NoMemory();
    if (wrong)
        return Py_NewRef(Py_False);
    return Py_NewRef(Py_True);
}

static PyMethodDef methods[] = {
    {"shrink", shrink, METH_VARARGS,
     "shrink(image, small, width, height, size): fill small; False if the sizes are not for it."},
    {"unfilter", unfilter, METH_VARARGS,
     "unfilter(rows, pixels, width, height): fill pixels from the inflated rows of a PNG."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_grey", NULL, -1, methods,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__grey(void)
{
    return PyModule_Create(&module);
}

/* The rows of an inflated 8-bit grey PNG back to pixels: the one step of reading a PNG that NumPy
   cannot do at once, because each pixel of an Average or Paeth row hangs on the one before it
   (PNG specification, section 9). Built where there is a C compiler; png.py does without, slower. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
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

static void paeth(unsigned char *row, const unsigned char *in, const unsigned char *above,
                  Py_ssize_t n)
{
    int left = 0, corner = 0;
    for (Py_ssize_t x = 0; x < n; x++) {
        int top = above[x], rise = top - corner, run = left - corner;
        int to_left = abs(rise), to_top = abs(run), to_corner = abs(rise + run);
        /* Written so that compilers choose without branching: which is nearest is random. */
        int guess = to_top <= to_corner ? top : corner;
        int nearest = to_top <= to_corner ? to_top : to_corner;
        guess = to_left <= nearest ? left : guess;
        left = (in[x] + guess) & 255;
        row[x] = (unsigned char)left;
        corner = top;
    }
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
        case 4: paeth(out, in, above, width); break;
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

static PyMethodDef methods[] = {
    {"unfilter", unfilter, METH_VARARGS,
     "unfilter(rows, pixels, width, height): fill pixels from the inflated rows of a PNG."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_grey", NULL, -1, methods,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__grey(void)
{
    return PyModule_Create(&module);
}

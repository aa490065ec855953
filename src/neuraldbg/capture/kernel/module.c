/* The native module ``neuraldbg.capture._kernel``: one translation unit, put together of the headers of this folder.

   No code here includes torch's headers, so one build (stable ABI) serves every version of Python and torch. */

#if defined(__GNUC__) && !defined(__clang__)
/* Allows sums, minima and maxima to be vectorised. Never -ffast-math: linked in, it would change how the whole process
   treats subnormal numbers. */
#pragma GCC optimize("O3", "associative-math", "no-signed-zeros", "no-trapping-math", "no-math-errno", \
                     "finite-math-only", "no-fp-int-builtin-inexact")
#endif

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif
#include <time.h>
#include <unistd.h>

#if !defined(__GNUC__)
#error "written with the vectors of GCC and clang"
#endif

#include "statistics.h"

#include "layer_hooks.h"
#include "compiled_ops.h"
#include "light_loop.h"
#include "wrappers.h"
#include "live_objects.h"

static PyMethodDef methods[] = {
    {"observe", (PyCFunction)(void (*)(void))observe, METH_FASTCALL, observe_doc},
    {"observe_many", (PyCFunction)(void (*)(void))observe_many, METH_FASTCALL, observe_many_doc},
    {"difference_many", (PyCFunction)(void (*)(void))difference_many, METH_FASTCALL, difference_many_doc},
    {"changed", (PyCFunction)(void (*)(void))changed, METH_FASTCALL, changed_doc},
    {"choose", chosen, METH_O, choose_doc},
    {"highest", (PyCFunction)(void (*)(void))highest, METH_FASTCALL, highest_doc},
    {"loss", loss, METH_O, loss_doc},
    {"finite_gradient", finite_gradient, METH_O, finite_gradient_doc},
    {"exponents", (PyCFunction)(void (*)(void))exponents, METH_FASTCALL, exponents_doc},
    {"keep_weights", (PyCFunction)(void (*)(void))keep_weights, METH_FASTCALL, keep_weights_doc},
    {"changed_weights", (PyCFunction)(void (*)(void))changed_weights, METH_FASTCALL, changed_weights_doc},
    {"stand", (PyCFunction)(void (*)(void))stand, METH_FASTCALL, stand_doc},
    {"call", (PyCFunction)(void (*)(void))call, METH_FASTCALL, call_doc},
    {"mark", (PyCFunction)(void (*)(void))mark, METH_FASTCALL, mark_doc},
    {"find_gradients", (PyCFunction)(void (*)(void))find_gradients, METH_FASTCALL, find_gradients_doc},
    {"hook", (PyCFunction)(void (*)(void))hook, METH_FASTCALL, hook_doc},
    {"meet", (PyCFunction)(void (*)(void))meet, METH_FASTCALL, meet_doc},
    {"meet_storages", (PyCFunction)(void (*)(void))meet_storages, METH_FASTCALL, meet_storages_doc},
    {"meet_shards", meet_shards, METH_O, meet_shards_doc},
    {"covers", (PyCFunction)(void (*)(void))covers, METH_FASTCALL, covers_doc},
    {"readable", readable, METH_O, readable_doc},
    {"functions", functions, METH_NOARGS, functions_doc},
    {"serve", serve, METH_O, serve_doc},
    {"instances", instances, METH_O, instances_doc},
    {"original", stood_for, METH_O, original_doc},
    {"point", (PyCFunction)(void (*)(void))point, METH_FASTCALL, point_doc},
    {NULL, NULL, 0, NULL},
};

static int start(PyObject *module) {
    choose(NULL);
    if (add_hooks(module) || add_graph(module) || add_light(module) || add_stand_ins(module)) return -1;
    return PyModule_AddStringConstant(module, "generation", generation);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)start}, {0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_kernel", "Statistics of tensors in one pass: see kernel.py.", 0, methods, slots, NULL, NULL,
    NULL,
};

PyMODINIT_FUNC PyInit__kernel(void) { return PyModuleDef_Init(&module); }

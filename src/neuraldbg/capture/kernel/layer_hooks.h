/* The work of hooks at every call of a layer, without Python in between. Included by module.c.

   An Output reads the output of one layer and sets its Gradient on it, which autograd calls. Both handle only the
   ordinary case, an exact Tensor whose contiguous memory is on the CPU in a dtype that we read, and pass all others to
   Python. */

#include "tensor_memory.h"

/* Either kind of hook, an Output or a Gradient. */
typedef struct {
    PyObject_HEAD
    double *row, *clock;
    int64_t cap;
    double bound, centre;
    PyObject *keep; /* the owner of that memory */
    PyObject *next; /* an output's Gradient, None if it is not read; a gradient's hook in Python */
    int known;      /* 1 once the hook in Python has read a gradient in place, and recorded its dtype */
} Watcher;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Returns 1 if this thread is the followed one, or any is: clock[1] has its number (Tally.clock of guest/guard.py). */
static int followed(const double *clock) {
    int64_t thread;
    memcpy(&thread, clock + 1, sizeof thread);
    return !thread || thread == (int64_t)PyThread_get_thread_ident();
}

/* Reads a tensor into a row: 1 if it was read, 0 if its memory is not contiguous. */
static int read_memory(const Memory *x, int64_t cap, double bound, double centre, double *row) {
    if (!x->contiguous || x->numel <= 0 || !x->address) return 0;
    PyThreadState *others = (cap <= 0 || cap > RELEASE) && x->numel > RELEASE ? PyEval_SaveThread() : NULL;
    read_sample((const char *)(intptr_t)x->address, x->code, x->numel, cap, bound, centre, NULL, 0, 0, row);
    if (others) PyEval_RestoreThread(others);
    return 1;
}

/* ---------------------------------------------------------------- a loss */

/* Returns one element of a dtype that is read. */
static double value_at(const char *at, int64_t code) {
    double value;
    float single;
    uint16_t half;
    if (code == FLOAT64) {
        memcpy(&value, at, 8);
        return value;
    }
    memcpy(&half, at, 2);
    if (code == BFLOAT16) single = of_bfloat16(half);
    else if (code == FLOAT16) single = of_float16(half);
    else memcpy(&single, at, 4);
    return (double)single;
}

/* Returns 1 and the value of an ordinary one-element tensor that can be differentiated; 0 for any other; -1 for a
   Python error. */
static int loss_at(PyObject *x, double *value) {
    Memory memory;
    if (!plainly() || !memory_of(x, &memory)) return 0;
    int leaf = has(x, torch.is_leaf, Py_True); /* without it there is a node, which need not become an object */
    if (leaf < 0) return -1;
    if (leaf || memory.numel != 1 || !memory.contiguous || !memory.address) return 0;
    *value = value_at((const char *)(intptr_t)memory.address, memory.code);
    return 1;
}

PyDoc_STRVAR(loss_doc, "loss(x)\n--\n\n"
"Return the number of an ordinary tensor that holds one and can be differentiated, None for any other.");

static PyObject *loss(PyObject *self, PyObject *x) {
    double value;
    int found = loss_at(x, &value);
    (void)self;
    if (found < 0) return NULL;
    if (!found) Py_RETURN_NONE;
    return PyFloat_FromDouble(value);
}

/* ---------------------------------------------------------------- tensors of a plan */

/* Returns a new reference to the tensor of a weak reference in a tuple, NULL if it has died: no plan keeps a tensor
   alive. */
static PyObject *named(PyObject *refs, Py_ssize_t i) {
    PyObject *ref = PyTuple_GetItem(refs, i);
    PyObject *x = ref ? PyWeakref_GetObject(ref) : NULL;
    if (!x || x == Py_None) return NULL;
    Py_INCREF(x);
    return x;
}

/* Returns 1 if n tensors of a tuple have the address and size of their plan, and their memory is still there.
   Readability of the pages is checked if some memory is `lent`. */
static int stand_all(const Entry *plan, PyObject *tensors, Py_ssize_t n, int lent) {
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *x = named(tensors, i);
        Memory memory;
        int stands = x && memory_at(x, &memory) && memory.address == plan[i].address &&
                     memory.numel == plan[i].numel && memory.code == plan[i].dtype &&
                     (!lent || pages_there(memory.address, memory.extent * SIZE[memory.code]));
        Py_XDECREF(x);
        if (!stands) return 0;
    }
    return 1;
}

PyDoc_STRVAR(stand_doc, "stand(plan, tensors, lent)\n--\n\n"
"Whether the tensors that a tuple of weak references names lie where a plan over them says, at that size, and, where some\n"
"of the memory is lent, on pages that can be read.");

static PyObject *stand(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    if (wrong(nargs, 3, "stand")) return NULL;
    const Entry *plan = (const Entry *)AT(args[0]);
    Py_ssize_t n = PyTuple_Size(args[1]);
    if (PyErr_Occurred()) return NULL;
    int stands = stand_all(plan, args[1], n, args[2] == Py_True);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(stands);
}

/* Returns the address of a contiguous gradient of this size and dtype, 0 if there is none, -1 for any other: a gradient
   may have another dtype than its tensor, or another device. `held` is a new reference to it: another thread may clear
   the tensor's gradient while it is read. */
static int64_t gradient_of(PyObject *x, int64_t numel, int64_t dtype, PyObject **held) {
    PyObject *grad = PyObject_GetAttr(x, torch.grad);
    Memory memory;
    *held = grad;
    if (!grad) {
        forgive();
        return -1;
    }
    int64_t address = grad == Py_None ? 0 : -1;
    if (address && memory_at(grad, &memory) && memory.code == dtype && memory.numel == numel && memory.contiguous &&
        memory.address)
        address = memory.address;
    return address;
}

PyDoc_STRVAR(finite_gradient_doc, "finite_gradient(x)\n--\n\n"
"Whether the gradient of a tensor holds finite numbers only. None where there is none, or no contiguous one on the CPU\n"
"of a dtype that is read.");

static PyObject *finite_gradient(PyObject *self, PyObject *x) {
    PyObject *grad = PyObject_GetAttr(x, torch.grad);
    Memory memory;
    (void)self;
    int found = grad && plainly() && memory_at(grad, &memory) && memory.contiguous && memory.numel > 0;
    if (!found) {
        Py_XDECREF(grad);
        if (!forgive()) return NULL;
        Py_RETURN_NONE;
    }
    Stats s;
    begin(&s);
    read_block((const char *)(intptr_t)memory.address, memory.code, memory.numel, 0.0, 0.0, NULL, 0, &s);
    Py_DECREF(grad);
    return PyBool_FromLong(s.nonfinite == 0);
}

#define EXPONENTS 512 /* and signs: the values of the upper 9 bits of a float32 */

PyDoc_STRVAR(exponents_doc, "exponents(x, cap)\n--\n\n"
"Count the elements of a contiguous float32 tensor on the CPU, or of a sample of `cap` of them, by sign and exponent:\n"
"512 int64 as bytes. None for any other tensor.");

static PyObject *exponents(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    if (wrong(nargs, 2, "exponents")) return NULL;
    int64_t cap = whole(args[1]), counts[EXPONENTS] = {0};
    Memory x;
    if (PyErr_Occurred()) return NULL;
    int found = plainly() && memory_of(args[0], &x) && x.code == FLOAT32 && x.contiguous && x.numel > 0;
    if (!found || negated(args[0])) {
        if (!forgive()) return NULL;
        Py_RETURN_NONE;
    }
    Spread sample = spread(x.numel, cap);
    for (int64_t block = 0; block < sample.blocks; block++) {
        const char *at = (const char *)(intptr_t)x.address + block * sample.step * SIZE[FLOAT32];
        for (int64_t i = 0; i < sample.size; i++) {
            uint32_t bits;
            memcpy(&bits, at + i * SIZE[FLOAT32], sizeof bits);
            counts[bits >> 23]++;
        }
    }
    return PyBytes_FromStringAndSize((const char *)counts, sizeof counts);
}

/* Writes the addresses of the gradients of the tensors of a tuple of weak references into a plan, 0 for none. Returns a
   tuple that holds the gradients, NULL if one differs from the plan. */
static PyObject *find_all(Entry *plan, PyObject *tensors, Py_ssize_t n) {
    PyObject *all = PyTuple_New(n);
    for (Py_ssize_t i = 0; all && i < n; i++) {
        PyObject *held = NULL, *x = named(tensors, i);
        plan[i].address = x ? gradient_of(x, plan[i].numel, plan[i].dtype, &held) : -1;
        Py_XDECREF(x);
        if (held) PyTuple_SetItem(all, i, held);
        if (plan[i].address == -1) Py_CLEAR(all);
    }
    return all;
}

PyDoc_STRVAR(find_gradients_doc, "find_gradients(plan, tensors)\n--\n\n"
"Put the addresses of the gradients of the tensors that weak references name into a plan, 0 for none. Returns the gradients, to be held\n"
"while they are read; None where one is not contiguous, or not of the size and dtype in the plan.");

static PyObject *find_gradients(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    if (wrong(nargs, 2, "find_gradients")) return NULL;
    Entry *plan = (Entry *)AT(args[0]);
    Py_ssize_t n = PyTuple_Size(args[1]);
    if (PyErr_Occurred()) return NULL;
    PyObject *held = find_all(plan, args[1], n);
    if (held) return held;
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(mark_doc, "mark(x, count)\n--\n\n"
"Return where a contiguous tensor lies and the bytes of some of its values, evenly spaced. None for any other.");

static PyObject *mark(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    if (wrong(nargs, 2, "mark")) return NULL;
    int64_t count = whole(args[1]);
    char values[8 * 64];
    Memory memory;
    if (PyErr_Occurred()) return NULL;
    int found = plainly() && memory_at(args[0], &memory) && memory.contiguous && memory.numel > 0 && memory.address;
    if (!found || !pages_there(memory.address, memory.numel * SIZE[memory.code])) {
        if (!forgive()) return NULL;
        Py_RETURN_NONE;
    }
    size_t size = memory.code == FLOAT64 ? 8 : memory.code == BFLOAT16 || memory.code == FLOAT16 ? 2 : 4;
    if (count > 64) count = 64;
    if (count > memory.numel) count = memory.numel;
    int64_t step = memory.numel / (count > 0 ? count : 1);
    for (int64_t i = 0; i < count; i++)
        memcpy(values + (size_t)i * size, (const char *)(intptr_t)memory.address + (size_t)(i * step) * size, size);
    PyObject *at = PyLong_FromLongLong(memory.address);
    PyObject *held = PyBytes_FromStringAndSize(values, (Py_ssize_t)((size_t)count * size));
    PyObject *both = at && held ? PyTuple_Pack(2, at, held) : NULL;
    Py_XDECREF(at);
    Py_XDECREF(held);
    return both;
}

/* ---------------------------------------------------------------- the gradient at an output */

static PyObject *gradient_call(PyObject *object, PyObject *args, PyObject *kwargs) {
    Watcher *self = (Watcher *)object;
    (void)kwargs;
    PyObject *grad = PyTuple_GetItem(args, 0);
    if (!grad) return NULL;
    double began = seconds();
    Memory memory;
    if (self->known && followed(self->clock) && plainly() && memory_of(grad, &memory) &&
        read_memory(&memory, self->cap, self->bound, self->centre, self->row)) {
        *self->clock += seconds() - began;
        Py_RETURN_NONE;
    }
    /* No negated gradient may be read here. A class or mode of the program would see the check. */
    if (!self->known && plainly() && ordinary(grad)) self->known = !negated(grad);
    if (PyErr_Occurred()) PyErr_Clear();
    return PyObject_CallFunctionObjArgs(self->next, grad, NULL);
}

/* ---------------------------------------------------------------- the output of a layer */

/* Sets a hook as Tensor.register_hook does, without a handle to remove it. The hook is its own key, so that an output
   that two layers return has both, and one that a layer returns again has it once. */
static int set_hook(PyObject *x, PyObject *node, PyObject *hook) {
    PyObject *hooks = PyObject_GetAttr(x, torch.hooks);
    if (!hooks) return -1;
    if (hooks == Py_None) {
        Py_DECREF(hooks);
        if (!(hooks = PyObject_CallObject(torch.ordered, NULL))) return -1;
        PyObject *adopted = NULL;
        if (!PyObject_SetAttr(x, torch.hooks, hooks)) adopted = PyObject_CallMethodObjArgs(node, torch.adopt, x, NULL);
        if (!adopted) {
            Py_DECREF(hooks);
            return -1;
        }
        Py_DECREF(adopted);
    }
    int failed = PyObject_SetItem(hooks, hook, hook);
    Py_DECREF(hooks);
    return failed;
}

PyDoc_STRVAR(hook_doc, "hook(x, hook)\n--\n\nHave autograd call `hook` with the gradient at `x`, which is no leaf.");

static PyObject *hook(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    if (wrong(nargs, 2, "hook")) return NULL;
    PyObject *node = PyObject_GetAttr(args[0], torch.grad_fn);
    if (!node) return NULL;
    int failed = set_hook(args[0], node, args[1]);
    Py_DECREF(node);
    if (failed) return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(output_doc, "read(x)\n--\n\n"
"Read an output. Returns 0 where nothing was read since it is no ordinary tensor, 1 where it was, and 2 where its\n"
"gradient will be, too.");

/* Returns 1 if a hook was set, 0 if the output has no graph. Errors are left to the same code in Python. */
static int follow(PyObject *x, PyObject *gradient) {
    if (gradient == Py_None) return 0;
    PyObject *node = PyObject_GetAttr(x, torch.grad_fn);
    if (!node) return -1;
    int failed = node != Py_None && set_hook(x, node, gradient);
    Py_DECREF(node);
    return failed ? -1 : node != Py_None;
}

static PyObject *output_read(PyObject *object, PyObject *x) {
    Watcher *self = (Watcher *)object;
    double began = seconds();
    Memory memory;
    if (!plainly() || !memory_of(x, &memory)) return PyLong_FromLong(0);
    int followed = follow(x, self->next);
    if (followed < 0) {
        if (!forgive()) return NULL;
        return PyLong_FromLong(0);
    }
    int there = followed || leaf_there(x, memory.extent * SIZE[memory.code]); /* a layer may return its own weights */
    if (!there || !read_memory(&memory, self->cap, self->bound, self->centre, self->row)) {
        if (!forgive()) return NULL;
        return PyLong_FromLong(0);
    }
    *self->clock += seconds() - began;
    return PyLong_FromLong(1 + followed);
}

/* ---------------------------------------------------------------- the types */

static int watcher_init(PyObject *object, PyObject *args, PyObject *kwargs) {
    Watcher *self = (Watcher *)object;
    long long row, clock, cap;
    PyObject *keep, *next;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "LLLddOO", &row, &clock, &cap, &self->bound, &self->centre, &keep, &next)) return -1;
    self->row = (double *)(intptr_t)row, self->clock = (double *)(intptr_t)clock, self->cap = cap;
    Py_INCREF(keep);
    Py_INCREF(next);
    self->keep = keep, self->next = next;
    return 0;
}

static int watcher_visit(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((Watcher *)object)->keep);
    Py_VISIT(((Watcher *)object)->next);
    return 0;
}

static int watcher_clear(PyObject *object) {
    Py_CLEAR(((Watcher *)object)->keep);
    Py_CLEAR(((Watcher *)object)->next);
    return 0;
}

static void watcher_free(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    watcher_clear(object);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

#define WATCHER_SLOTS                                                                                                  \
    {Py_tp_init, (void *)watcher_init}, {Py_tp_traverse, (void *)watcher_visit},                                       \
    {Py_tp_clear, (void *)watcher_clear}, {Py_tp_dealloc, (void *)watcher_free}, {0, NULL}

static PyType_Slot gradient_slots[] = {
    {Py_tp_doc, "Gradient(row, clock, cap, bound, centre, keep, slow): the hook of one gradient; `row` and `clock` are "
                "addresses."},
    {Py_tp_call, (void *)gradient_call}, WATCHER_SLOTS,
};
static PyType_Spec gradient_spec = {
    "neuraldbg.capture._kernel.Gradient", sizeof(Watcher), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, gradient_slots,
};

static PyMethodDef output_methods[] = {{"read", output_read, METH_O, output_doc}, {NULL, NULL, 0, NULL}};
static PyType_Slot output_slots[] = {
    {Py_tp_doc, "Output(row, clock, cap, bound, centre, keep, gradient): reads the outputs of one layer."},
    {Py_tp_methods, (void *)output_methods}, WATCHER_SLOTS,
};
static PyType_Spec output_spec = {
    "neuraldbg.capture._kernel.Output", sizeof(Watcher), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, output_slots,
};

PyDoc_STRVAR(meet_doc, "meet(tensor, parameter, codes, strided, transforming, ordered, exchange, heard)\n--\n\n"
"Say what torch is: its two ordinary types of tensors, the codes of the dtypes, and more that a hook asks for; its\n"
"exchange table of DLPack in a capsule, or None; what tells whether a TorchFunctionMode hears of operations.");

static PyObject *meet(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    PyObject **places[] = {&torch.tensor, &torch.parameter, &torch.codes, &torch.strided, &torch.transforming, &torch.ordered};
    (void)self;
    if (wrong(nargs, 8, "meet")) return NULL;
    PyObject *before = torch.heard;
    Py_INCREF(args[7]);
    torch.heard = args[7];
    Py_XDECREF(before);
    for (int i = 0; i < 6; i++) {
        Py_INCREF(args[i]);
        Py_XDECREF(*places[i]);
        *places[i] = args[i];
    }
    meet_exchange(args[6]);
    Py_RETURN_NONE;
}

static int add_hooks(PyObject *module) {
    static const struct { PyObject **name; const char *said; } names[] = {
        {&torch.dtype, "dtype"},           {&torch.layout, "layout"},
        {&torch.is_cpu, "is_cpu"},         {&torch.is_leaf, "is_leaf"},
        {&torch.grad, "grad"},             {&torch.grad_fn, "grad_fn"},
        {&torch.hooks, "_backward_hooks"}, {&torch.contiguous, "is_contiguous"},
        {&torch.numel, "numel"},           {&torch.pointer, "data_ptr"},
        {&torch.adopt, "_register_hook_dict"}, {&torch.negative, "is_neg"},
        {&torch.nested, "is_nested"},      {&torch.impl, "_cdata"},
        {&torch.storage, "untyped_storage"}, {&torch.resizable, "resizable"}, {&torch.bytes, "nbytes"},
        {&torch.begins, "storage_offset"}, {&torch.shape, "shape"},
        {&torch.strides, "stride"},        {&torch.shard, "_local_tensor"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!(*names[i].name = PyUnicode_InternFromString(names[i].said))) return -1;
    PyObject *gradient = PyType_FromSpec(&gradient_spec), *output = PyType_FromSpec(&output_spec);
    /* torch then does not warn that a saved tensor loses this hook */
    int failed = !gradient || !output || PyObject_SetAttrString(gradient, "__torch_unserializable__", Py_True) ||
                 PyModule_AddObjectRef(module, "Gradient", gradient) || PyModule_AddObjectRef(module, "Output", output);
    Py_XDECREF(gradient);
    Py_XDECREF(output);
    return failed ? -1 : 0;
}

/* Where the memory of a tensor lies: included by _kernel.c.

   torch hands that out to C by the exchange table of DLPack, one call for all there is to know of an ordinary tensor
   (https://dmlc.github.io/dlpack/latest/python_spec.html; torch 2.10 and later). Without it the same is asked for as any
   Python program could, by attributes and methods, which takes five times as long. */

typedef struct {
    PyObject *tensor, *parameter; /* the two ordinary types */
    PyObject *codes;              /* dtype -> code */
    PyObject *strided;            /* torch.strided */
    PyObject *transforming;       /* tells whether function transforms are active */
    PyObject *ordered;            /* OrderedDict */
    PyObject *heard;              /* tells whether a TorchFunctionMode hears of operations */
    PyObject *dtype, *layout, *is_cpu, *is_leaf, *grad, *grad_fn, *hooks, *contiguous, *numel, *pointer, *adopt, *negative; /* names */
} Torch;

static Torch torch;

/* -1 for an error of Python's, else whether the attribute is the object. */
static int has(PyObject *x, PyObject *name, PyObject *wanted) {
    PyObject *found = PyObject_GetAttr(x, name);
    if (!found) return -1;
    Py_DECREF(found);
    return found == wanted;
}

static int64_t number(PyObject *x, PyObject *name) {
    PyObject *found = PyObject_CallMethodObjArgs(x, name, NULL);
    if (!found) return -1;
    int64_t value = whole(found);
    Py_DECREF(found);
    return value;
}

static int ordinary(PyObject *x) {
    return (PyObject *)Py_TYPE(x) == torch.tensor || (PyObject *)Py_TYPE(x) == torch.parameter;
}

static int says_no(PyObject *function) {
    PyObject *said = PyObject_CallObject(function, NULL);
    Py_XDECREF(said);
    if (!said) PyErr_Clear();
    return said == Py_False;
}

/* Whether we are outside of function transforms, where tensors are what they seem, and of a TorchFunctionMode of the
   program's, which hears of every attribute that is read: Python reads there, unheard. */
static int plainly(void) { return says_no(torch.transforming) && says_no(torch.heard); }

/* ---------------------------------------------------------------- DLPack, version 1 */

typedef struct {
    void *data;
    struct { int32_t type, index; } device;
    int32_t axes;
    struct { uint8_t code, bits; uint16_t lanes; } dtype;
    int64_t *shape, *strides;
    uint64_t offset;
} Lent;

typedef struct {
    struct { uint32_t major, minor; } version;
    void *older, *allocate, *lend_owned, *take;
    int (*lend)(void *, Lent *); /* -1 with an error of Python's */
    void *stream;
} Exchange;

#define ON_CPU 1
#define PATIENCE 4 /* errors after which it is not asked any more: each takes torch a millisecond */

static int (*lend)(void *, Lent *);
static int refused; /* in all: what is refused once comes with every step, between others that are not */

/* Takes the table out of its capsule, if there is one. */
static void meet_exchange(PyObject *capsule) {
    const Exchange *table = capsule != Py_None ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : NULL;
    lend = table && table->version.major == 1 ? table->lend : NULL; /* it stays as long as the process does */
    refused = 0;
    if (PyErr_Occurred()) PyErr_Clear();
}

/* ---------------------------------------------------------------- memory */

/* Of a tensor. `address` is 0 where it has no memory. */
typedef struct {
    int64_t code, numel, address;
    int contiguous;
} Memory;

static int64_t code_lent(const Lent *lent) {
    enum { FLOATING = 2, BRAIN = 4 };
    int bits = lent->dtype.lanes == 1 ? lent->dtype.bits : 0;
    if (lent->dtype.code == BRAIN && bits == 16) return BFLOAT16;
    if (lent->dtype.code != FLOATING) return -1;
    return bits == 32 ? FLOAT32 : bits == 64 ? FLOAT64 : bits == 16 ? FLOAT16 : -1;
}

/* As Tensor.is_contiguous says it, where there is any element. */
static int fill_lent(const Lent *lent, Memory *memory) {
    memory->numel = 1, memory->contiguous = 1;
    for (int32_t i = lent->axes - 1; i >= 0; i--) {
        if (lent->shape[i] != 1 && lent->strides && lent->strides[i] != memory->numel) memory->contiguous = 0;
        memory->numel *= lent->shape[i];
    }
    memory->address = lent->data ? (int64_t)(intptr_t)lent->data + (int64_t)lent->offset : 0;
    memory->code = lent->device.type == ON_CPU ? code_lent(lent) : -1;
    return memory->code >= 0;
}

/* The same by attributes. */
static int fill_asked(PyObject *x, Memory *memory) {
    PyObject *dtype = NULL, *code = NULL;
    if (has(x, torch.is_cpu, Py_True) != 1 || !(dtype = PyObject_GetAttr(x, torch.dtype)) ||
        !(code = PyDict_GetItemWithError(torch.codes, dtype))) {
        Py_XDECREF(dtype);
        return 0;
    }
    memory->code = whole(code);
    Py_DECREF(dtype);
    PyObject *contiguous = PyObject_CallMethodObjArgs(x, torch.contiguous, NULL);
    Py_XDECREF(contiguous);
    memory->contiguous = contiguous == Py_True;
    memory->numel = contiguous ? number(x, torch.numel) : -1;
    memory->address = memory->numel >= 0 ? number(x, torch.pointer) : -1;
    return 1;
}

/* What DLPack says of ordinary memory: 1 or 0, -1 where it says nothing. */
static int fill(PyObject *x, Memory *memory) {
    Lent lent;
    if (!lend) return -1;
    if (!lend(x, &lent)) return fill_lent(&lent, memory);
    PyErr_Clear(); /* of another kind, as a nested one */
    if (++refused >= PATIENCE) lend = NULL;
    return -1;
}

/* 1 for an ordinary tensor whose memory lies on the CPU in a dtype that is read; 0 for any other. To be asked outside of
   function transforms. What is said to be negated when it is read, as the imaginary part of a conjugate, is not in
   memory as it is; such a view of more than one element has holes. */
static int memory_of(PyObject *x, Memory *memory) {
    if (!ordinary(x)) return 0;
    int found = has(x, torch.layout, torch.strided) == 1;
    int told = found ? fill(x, memory) : -1;
    found = found && (told < 0 ? fill_asked(x, memory) : told);
    if (found && memory->numel == 1) {
        PyObject *negative = PyObject_CallMethodObjArgs(x, torch.negative, NULL);
        Py_XDECREF(negative);
        memory->contiguous &= negative == Py_False;
    }
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    return found;
}

/* The memory of a tensor, and the predicate that it is there. Included by module.c. guest/tensor_memory.py is the same
   in Python.

   torch gives all properties of an ordinary tensor to C in one call, through the exchange table of DLPack
   (https://dmlc.github.io/dlpack/latest/python_spec.html; torch 2.10 and later). Without it they are read as any Python
   program could, by attributes and methods, which takes five times as long. */

typedef struct {
    PyObject *tensor, *parameter; /* the two ordinary types */
    PyObject *codes;              /* dtype -> code */
    PyObject *strided;            /* torch.strided */
    PyObject *transforming;       /* returns True if function transforms are active */
    PyObject *sharded;            /* DTensor, NULL until one was seen */
    PyObject *ordered;            /* OrderedDict */
    PyObject *heard;              /* returns True if a TorchFunctionMode is active */
    PyObject *dtype, *layout, *is_cpu, *is_leaf, *grad, *grad_fn, *hooks, *contiguous, *numel, *pointer, *adopt, *negative, *nested, *impl,
        *storage, *resizable, *bytes, *begins, *shape, *strides, *shard; /* names */
} Torch;

static Torch torch;

/* Returns 1 if the attribute is the object, else 0; -1 for a Python error. */
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

/* Returns 1 if a function of torch returns False. */
static int says_no(PyObject *function) {
    PyObject *said = PyObject_CallObject(function, NULL);
    Py_XDECREF(said);
    if (!said) PyErr_Clear();
    return said == Py_False;
}

/* Returns 1 outside of function transforms, where tensors are what they seem, and of a TorchFunctionMode of the
   program, which sees every attribute access: then Python reads, in `unheard`. */
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
    int (*lend)(void *, Lent *); /* -1 with a Python error set */
    void *stream;
} Exchange;

#define ON_CPU 1
#define PATIENCE 4 /* errors after which it is not called any more: each takes torch a millisecond */

static int (*lend)(void *, Lent *);
static int refused; /* in all: a tensor that is refused comes back at every step, between others that are not */

/* Takes the table out of its capsule, if there is one. */
static void meet_exchange(PyObject *capsule) {
    const Exchange *table = capsule != Py_None ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : NULL;
    lend = table && table->version.major == 1 ? table->lend : NULL; /* it lives as long as the process */
    refused = 0;
    if (PyErr_Occurred()) PyErr_Clear();
}

/* ---------------------------------------------------------------- storages

   A storage may be freed, or made smaller, while views of it are alive: offloading and FSDP do so between two uses. The
   views do not notice: an address is computed from that of the storage, which is null, and an offset. torch's C
   interface for compiled programs returns the number of bytes for a tensor, given as the pointer that Python calls
   `_cdata`; guest/native.py tests it before it is trusted. Without it Python's methods are called. */

static int32_t (*storage_bytes)(void *const *, int64_t *), (*storage_begins)(void *const *, int64_t *);

static int storage_lent(PyObject *x, int64_t *bytes, int64_t *begins) {
    PyObject *impl = PyObject_GetAttr(x, torch.impl);
    void *at = impl ? PyLong_AsVoidPtr(impl) : NULL;
    Py_XDECREF(impl);
    return at && !storage_bytes(&at, bytes) && !storage_begins(&at, begins);
}

static int storage_asked(PyObject *x, int64_t *bytes, int64_t *begins) {
    PyObject *storage = PyObject_CallMethodObjArgs(x, torch.storage, NULL);
    *bytes = storage ? number(storage, torch.bytes) : -1;
    Py_XDECREF(storage);
    *begins = *bytes >= 0 ? number(x, torch.begins) : -1;
    return *begins >= 0;
}

/* ---------------------------------------------------------------- pages

   Memory that a storage holds may still crash the process that reads it: a file that was truncated under its mapping
   (torch.load(mmap=True), and then another checkpoint over the file) raises SIGBUS, a page that was protected or
   unmapped SIGSEGV. The program dies of that when it reads such weights itself, and must not die of our reading when it
   no longer does. Linux copies the set given to a call that changes signal masks before it finds that there is no such
   change: EFAULT if the set cannot be read. The first page and the last are checked: a file is truncated at its end,
   and storages are protected whole. */

#if defined(__linux__)
static int word_there(int64_t address) {
    enum { NO_SUCH_CHANGE = -1, BYTES = 8 };
    return syscall(SYS_rt_sigprocmask, NO_SUCH_CHANGE, (void *)(intptr_t)(address / BYTES * BYTES), NULL, BYTES) == 0 ||
           errno != EFAULT;
}
#else
static int word_there(int64_t address) { return (void)address, 1; }
#endif

static int pages_there(int64_t address, int64_t bytes) {
    return bytes <= 0 || (word_there(address) && word_there(address + bytes - 1));
}

/* The same as tensor_memory.lent. */
static int is_lent(PyObject *x) {
    PyObject *storage = PyObject_CallMethodObjArgs(x, torch.storage, NULL);
    PyObject *resizable = storage ? PyObject_CallMethodObjArgs(storage, torch.resizable, NULL) : NULL;
    Py_XDECREF(storage);
    Py_XDECREF(resizable);
    return resizable != Py_True;
}

/* Returns 1 if so many bytes of an ordinary tensor are on readable pages. Checked for lent memory that no operation has
   written to: the check takes as long as ten others. */
static int leaf_there(PyObject *x, int64_t bytes) {
    if (has(x, torch.is_leaf, Py_True) != 1 || has(x, torch.is_cpu, Py_True) != 1 || !is_lent(x)) return !PyErr_Occurred();
    int64_t address = PyErr_Occurred() ? -1 : number(x, torch.pointer);
    return address >= 0 && pages_there(address, bytes);
}

/* Returns 1 if the storage of an ordinary tensor holds so many elements of so many bytes, from the tensor's first. */
static int covered(PyObject *x, int64_t elements, int64_t size) {
    int64_t bytes, begins;
    if (!(storage_bytes ? storage_lent : storage_asked)(x, &bytes, &begins)) return 0;
    return size > 0 && elements <= bytes / size - begins;
}

PyDoc_STRVAR(covers_doc, "covers(x, elements, size)\n--\n\n"
"Return True if the storage of an ordinary tensor holds so many elements of so many bytes, from where the tensor begins,\n"
"and, in lent memory that nothing was computed into, if they lie on pages that can be read.");

static PyObject *covers(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    if (wrong(nargs, 3, "covers")) return NULL;
    int64_t elements = whole(args[1]), size = whole(args[2]);
    int found = !PyErr_Occurred() && ordinary(args[0]) && covered(args[0], elements, size) && leaf_there(args[0], elements * size);
    if (PyErr_Occurred()) return NULL;
    return PyBool_FromLong(found);
}

PyDoc_STRVAR(meet_storages_doc, "meet_storages(bytes, begins)\n--\n\n"
"Take the addresses of `aoti_torch_get_storage_size` and `aoti_torch_get_storage_offset`; 0 to ask Python instead.");

static PyObject *meet_storages(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    if (wrong(nargs, 2, "meet_storages")) return NULL;
    int64_t bytes = whole(args[0]), begins = whole(args[1]);
    if (PyErr_Occurred()) return NULL;
    storage_bytes = (int32_t(*)(void *const *, int64_t *))(intptr_t)bytes;
    storage_begins = (int32_t(*)(void *const *, int64_t *))(intptr_t)begins;
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- memory */

/* The memory of a tensor. `address` is 0 if it has none; `extent` are the elements from its first to its last in
   memory. */
typedef struct {
    int64_t code, numel, address, extent;
    int contiguous;
} Memory;

static int64_t code_lent(const Lent *lent) {
    enum { FLOATING = 2, BRAIN = 4 };
    int bits = lent->dtype.lanes == 1 ? lent->dtype.bits : 0;
    if (lent->dtype.code == BRAIN && bits == 16) return BFLOAT16;
    if (lent->dtype.code != FLOATING) return -1;
    return bits == 32 ? FLOAT32 : bits == 64 ? FLOAT64 : bits == 16 ? FLOAT16 : -1;
}

/* The same as Tensor.is_contiguous, if there is any element. */
static int fill_lent(const Lent *lent, Memory *memory) {
    memory->numel = 1, memory->contiguous = 1, memory->extent = 1;
    for (int32_t i = lent->axes - 1; i >= 0; i--) {
        if (lent->shape[i] != 1 && lent->strides && lent->strides[i] != memory->numel) memory->contiguous = 0;
        memory->extent += (lent->shape[i] - 1) * (lent->strides ? lent->strides[i] : memory->numel);
        memory->numel *= lent->shape[i];
    }
    memory->address = lent->data ? (int64_t)(intptr_t)lent->data + (int64_t)lent->offset : 0;
    memory->code = lent->device.type == ON_CPU ? code_lent(lent) : -1;
    return memory->code >= 0;
}

/* Returns the elements from the first to the last in memory of a tensor with holes; -1 for a Python error. */
static int64_t extent_asked(PyObject *x) {
    int64_t extent = 1;
    PyObject *shape = PyObject_GetAttr(x, torch.shape);
    PyObject *strides = shape ? PyObject_CallMethodObjArgs(x, torch.strides, NULL) : NULL;
    for (Py_ssize_t i = 0; strides && i < PyTuple_Size(shape); i++)
        extent += (whole(PyTuple_GetItem(shape, i)) - 1) * whole(PyTuple_GetItem(strides, i));
    Py_XDECREF(shape);
    Py_XDECREF(strides);
    return strides && !PyErr_Occurred() ? extent : -1;
}

/* Fills in the same by attributes. */
static int fill_asked(PyObject *x, Memory *memory) {
    PyObject *dtype = NULL, *code = NULL;
    if (has(x, torch.is_cpu, Py_True) != 1 || has(x, torch.nested, Py_False) != 1 ||
        !(dtype = PyObject_GetAttr(x, torch.dtype)) || !(code = PyDict_GetItemWithError(torch.codes, dtype))) {
        Py_XDECREF(dtype);
        return 0;
    }
    memory->code = whole(code);
    Py_DECREF(dtype);
    PyObject *contiguous = PyObject_CallMethodObjArgs(x, torch.contiguous, NULL);
    Py_XDECREF(contiguous);
    memory->contiguous = contiguous == Py_True;
    memory->numel = contiguous ? number(x, torch.numel) : -1;
    memory->extent = memory->contiguous ? memory->numel : extent_asked(x);
    memory->address = memory->numel >= 0 ? number(x, torch.pointer) : -1;
    return memory->address >= 0;
}

/* Fills in DLPack's description of ordinary memory: 1 or 0, -1 if there is none. */
static int fill(PyObject *x, Memory *memory) {
    Lent lent;
    if (!lend) return -1;
    if (!lend(x, &lent)) return fill_lent(&lent, memory);
    PyErr_Clear(); /* of another kind, such as a nested tensor */
    if (++refused >= PATIENCE) lend = NULL;
    return -1;
}

/* Returns 1 if torch negates a tensor as it is read: its memory holds the negated values. */
static int negated(PyObject *x) {
    PyObject *negative = PyObject_CallMethodObjArgs(x, torch.negative, NULL);
    Py_XDECREF(negative);
    return negative != Py_False;
}

/* The predicate before every reading of memory: 1 for an ordinary tensor on the CPU in a dtype that we read, whose
   storage holds all of it; 0 for any other. Call it outside of function transforms. A tensor with the negation bit, as
   the imaginary part of a conjugate, has holes if it has more than one element. Only one made by `torch._neg_view`,
   which is torch's own, has none: a hook checks that at the first of its tensors, since a check at each would take a
   twentieth of all its time. */
static int memory_of(PyObject *x, Memory *memory) {
    if (!ordinary(x)) return 0;
    int found = has(x, torch.layout, torch.strided) == 1;
    int told = found ? fill(x, memory) : -1;
    found = found && (told < 0 ? fill_asked(x, memory) : told);
    if (found && memory->numel > 0) found = memory->address && covered(x, memory->extent, SIZE[memory->code]);
    if (found && memory->numel == 1) {
        memory->contiguous &= !negated(x);
    }
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    return found;
}

/* ---------------------------------------------------------------- shards

   A DTensor has a shape and no memory: its local part, a shard or an addend, is an ordinary tensor inside of it. */

/* Returns the local tensor of a DTensor, a new reference; NULL for any other tensor. */
static PyObject *shard_of(PyObject *x) {
    if (!torch.sharded || (PyObject *)Py_TYPE(x) != torch.sharded) return NULL;
    PyObject *part = PyObject_GetAttr(x, torch.shard);
    return forgive() ? part : (Py_XDECREF(part), NULL);
}

/* The same as memory_of, and for a DTensor the memory of its local part. */
static int memory_at(PyObject *x, Memory *memory) {
    if (ordinary(x)) return memory_of(x, memory);
    PyObject *part = shard_of(x);
    int found = part && memory_of(part, memory);
    Py_XDECREF(part); /* the DTensor holds it */
    return found;
}

PyDoc_STRVAR(meet_shards_doc, "meet_shards(type)\n--\n\nSay what DTensor is, once there is one.");

static PyObject *meet_shards(PyObject *self, PyObject *type) {
    PyObject *old = torch.sharded;
    (void)self;
    Py_INCREF(type);
    torch.sharded = type;
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(readable_doc, "readable(x)\n--\n\n"
"Return True if native code reads this tensor, or this rank's part of a DTensor: an ordinary one on the CPU in a dtype that\n"
"is read, whose storage holds all of it.");

static PyObject *readable(PyObject *self, PyObject *x) {
    Memory memory;
    (void)self;
    int found = plainly() && memory_at(x, &memory);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(found);
}

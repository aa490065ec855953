/* The operators of torch.compile graphs (compiled/operators.py), without Python in between. Included by module.c.

   They are registered through torch's stable C interface, whose functions Python finds and passes as addresses: nothing
   is linked. The arguments of a call belong to the call, which deletes them. */

typedef uint64_t Value; /* an argument or a result: a number, or the object behind a handle */
typedef void *Handle;

#define SHIM(X)                                                                                                        \
    X(int32_t, aoti_torch_dtype_float32, (void))                                                                       \
    X(int32_t, aoti_torch_dtype_float64, (void))                                                                       \
    X(int32_t, aoti_torch_dtype_float16, (void))                                                                       \
    X(int32_t, aoti_torch_dtype_bfloat16, (void))                                                                      \
    X(int32_t, aoti_torch_device_type_cpu, (void))                                                                     \
    X(int32_t, aoti_torch_get_data_ptr, (Handle, void **))                                                             \
    X(int32_t, aoti_torch_get_dtype, (Handle, int32_t *))                                                              \
    X(int32_t, aoti_torch_get_dim, (Handle, int64_t *))                                                                \
    X(int32_t, aoti_torch_get_sizes, (Handle, int64_t **))                                                             \
    X(int32_t, aoti_torch_get_strides, (Handle, int64_t **))                                                           \
    X(int32_t, aoti_torch_get_storage_size, (Handle, int64_t *))                                                       \
    X(int32_t, aoti_torch_get_storage_offset, (Handle, int64_t *))                                                     \
    X(int32_t, aoti_torch_empty_strided,                                                                               \
      (int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t, Handle *))                                \
    X(int32_t, aoti_torch_delete_tensor_object, (Handle))                                                              \
    X(int32_t, torch_list_size, (Handle, size_t *))                                                                    \
    X(int32_t, torch_list_get_item, (Handle, size_t, Value *))                                                         \
    X(int32_t, torch_delete_list, (Handle))                                                                            \
    X(int32_t, aoti_torch_library_init_impl, (const char *, const char *, const char *, uint32_t, Handle *))           \
    X(int32_t, aoti_torch_delete_library_object, (Handle))                                                             \
    X(int32_t, torch_library_impl, (Handle, const char *, void (*)(Value *, uint64_t, uint64_t), uint64_t))

#define DECLARE(result, name, arguments) static result(*name) arguments;
SHIM(DECLARE)
#undef DECLARE

#define BUILT_FOR (((uint64_t)2 << 56) | ((uint64_t)10 << 48)) /* torch 2.10: the first with all of these */

/* Tables by handle: addresses of rows and clock, NULL while the table is closed. In pages that keep their address,
   since a graph may run on another thread meanwhile. */
typedef struct { double *rows, *clock; } Place;
enum { PAGE = 1024 };
static Place *pages[PAGE];

static Place *place_of(Value handle) {
    Place *page = handle < (Value)PAGE * PAGE ? pages[handle / PAGE] : NULL;
    return page ? page + handle % PAGE : NULL;
}

/* Returns 1 if this thread may read into a table now. */
static int reads(const Place *place) { return place && place->rows && followed(place->clock); }

static int64_t code_of_handle(Handle x) {
    int32_t found, (*known[DTYPES])(void) = {aoti_torch_dtype_float32, aoti_torch_dtype_float64,
                                             aoti_torch_dtype_float16, aoti_torch_dtype_bfloat16};
    if (aoti_torch_get_dtype(x, &found)) return -1;
    for (int64_t i = 0; i < DTYPES; i++)
        if (known[i]() == found) return i;
    return -1;
}

/* Reads elements one by one along the axes of a tensor with holes. */
static void read_strided(const char *x, int64_t code, int64_t dim, const int64_t *sizes, const int64_t *strides,
                         double bound, double centre, Stats *s) {
    if (dim == 0) {
        read_block(x, code, 1, bound, centre, NULL, 0, s);
        return;
    }
    for (int64_t i = 0; i < sizes[0]; i++)
        read_strided(x + i * strides[0] * SIZE[code], code, dim - 1, sizes + 1, strides + 1, bound, centre, s);
}

/* Returns 1 if the elements fill their memory, in any order. 0 for a tensor of more axes than are checked. */
static int fills(int64_t dim, const int64_t *sizes, const int64_t *strides) {
    int64_t expected = 1, left = 0;
    for (int64_t i = 0; i < dim; i++) left += sizes[i] != 1;
    while (left > 0) {
        int64_t before = left;
        for (int64_t i = 0; i < dim; i++)
            if (sizes[i] != 1 && strides[i] == expected) expected *= sizes[i], left--;
        if (left == before) return 0;
    }
    return 1;
}

/* The same predicate as memory_of for a tensor of Python's. */
static void read_handle(Handle x, double *row, int64_t total, double bound, double centre) {
    void *data;
    int64_t dim, *sizes, *strides, bytes, begins, numel = 1, extent = 1, code = code_of_handle(x);
    if (code < 0 || aoti_torch_get_dim(x, &dim) || aoti_torch_get_sizes(x, &sizes) ||
        aoti_torch_get_strides(x, &strides) || aoti_torch_get_storage_size(x, &bytes) ||
        aoti_torch_get_storage_offset(x, &begins) || aoti_torch_get_data_ptr(x, &data))
        return;
    for (int64_t i = 0; i < dim; i++) numel *= sizes[i], extent += (sizes[i] - 1) * strides[i];
    if (numel <= 0 || !data || extent > bytes / SIZE[code] - begins) return;
    Stats s;
    begin(&s);
    if (fills(dim, sizes, strides))
        read_block(data, code, numel, bound, centre, NULL, 0, &s);
    else
        read_strided(data, code, dim, sizes, strides, bound, centre, &s);
    finish(&s, row, total, numel);
}

static Value item(Value list, size_t i) {
    Value found = 0;
    torch_list_get_item((Handle)(uintptr_t)list, i, &found);
    return found;
}

static double real(Value bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* observe(Tensor[] xs, Tensor(a!) table, int handle, int[] rows, SymInt[] totals, float[] bounds) -> () */
static void graph_observe(Value *stack, uint64_t arguments, uint64_t results) {
    (void)arguments, (void)results;
    Place *place = place_of(stack[2]);
    void *rows = NULL; /* the argument's: a compiler may pass a copy, and copy that back */
    if (reads(place)) aoti_torch_get_data_ptr((Handle)(uintptr_t)stack[1], &rows);
    double began = rows ? seconds() : 0.0;
    size_t n = 0;
    torch_list_size((Handle)(uintptr_t)stack[0], &n);
    for (size_t i = 0; i < n; i++) {
        Handle x = (Handle)(uintptr_t)item(stack[0], i); /* the list does not delete its items */
        if (rows)
            read_handle(x, (double *)rows + (int64_t)item(stack[3], i) * WIDTH, (int64_t)item(stack[4], i),
                        real(item(stack[5], 2 * i)), real(item(stack[5], 2 * i + 1)));
        aoti_torch_delete_tensor_object(x);
    }
    if (rows) *place->clock += seconds() - began;
    aoti_torch_delete_tensor_object((Handle)(uintptr_t)stack[1]);
    torch_delete_list((Handle)(uintptr_t)stack[0]);
    for (int i = 3; i < 6; i++) torch_delete_list((Handle)(uintptr_t)stack[i]);
}

/* Four doubles: row, row of the gradient, bound and centre of saturation. */
static const double *places_of(Value places) {
    void *data = NULL;
    aoti_torch_get_data_ptr((Handle)(uintptr_t)places, &data);
    return data;
}

/* observe_at(Tensor x, Tensor(a!) table, int handle, Tensor places, SymInt total) -> () */
static void graph_observe_at(Value *stack, uint64_t arguments, uint64_t results) {
    (void)arguments, (void)results;
    Place *place = place_of(stack[2]);
    void *rows = NULL;
    const double *at = reads(place) ? places_of(stack[3]) : NULL;
    if (at && at[0] >= 0.0 && !aoti_torch_get_data_ptr((Handle)(uintptr_t)stack[1], &rows)) {
        double began = seconds();
        read_handle((Handle)(uintptr_t)stack[0], (double *)rows + (int64_t)at[0] * WIDTH, (int64_t)stack[4], at[2], at[3]);
        *place->clock += seconds() - began;
    }
    aoti_torch_delete_tensor_object((Handle)(uintptr_t)stack[0]);
    aoti_torch_delete_tensor_object((Handle)(uintptr_t)stack[1]);
    aoti_torch_delete_tensor_object((Handle)(uintptr_t)stack[3]);
}

/* Reads a gradient, if there is a row for it, and deletes it. */
static void read_gradient(Handle grad, Place *place, int64_t row, int64_t total) {
    if (reads(place) && row >= 0) {
        double began = seconds();
        read_handle(grad, place->rows + row * WIDTH, total, 0.0, 0.0);
        *place->clock += seconds() - began;
    }
    aoti_torch_delete_tensor_object(grad);
}

static Value a_zero(void) {
    Handle zero = NULL;
    void *data;
    aoti_torch_empty_strided(0, NULL, NULL, aoti_torch_dtype_float32(), aoti_torch_device_type_cpu(), 0, &zero);
    if (zero && !aoti_torch_get_data_ptr(zero, &data)) *(float *)data = 0.0f;
    return (Value)(uintptr_t)zero;
}

/* observe_gradients(Tensor[] grads, int handle, int[] rows, SymInt[] totals) -> Tensor */
static void graph_observe_gradients(Value *stack, uint64_t arguments, uint64_t results) {
    (void)arguments, (void)results;
    Place *place = place_of(stack[1]);
    size_t n = 0;
    torch_list_size((Handle)(uintptr_t)stack[0], &n);
    for (size_t i = 0; i < n; i++)
        read_gradient((Handle)(uintptr_t)item(stack[0], i), place, (int64_t)item(stack[2], i),
                      (int64_t)item(stack[3], i));
    torch_delete_list((Handle)(uintptr_t)stack[0]);
    torch_delete_list((Handle)(uintptr_t)stack[2]);
    torch_delete_list((Handle)(uintptr_t)stack[3]);
    stack[0] = a_zero();
}

/* observe_gradient_at(Tensor grad, int handle, Tensor places, SymInt total) -> Tensor */
static void graph_observe_gradient_at(Value *stack, uint64_t arguments, uint64_t results) {
    (void)arguments, (void)results;
    const double *at = places_of(stack[2]);
    read_gradient((Handle)(uintptr_t)stack[0], place_of(stack[1]), at ? (int64_t)at[1] : -1, (int64_t)stack[3]);
    aoti_torch_delete_tensor_object((Handle)(uintptr_t)stack[2]);
    stack[0] = a_zero();
}

/* ---------------------------------------------------------------- a call from Python

   A compiled graph calls an operator from Python, through torch's schema and dispatcher: pages of code that nothing
   else in a step touches. While the table is closed, which is most of the time, a Shortcut returns before them. */

typedef struct {
    PyObject_HEAD
    PyObject *slow;   /* the operator that it replaces */
    PyObject *modes;  /* returns the number of active dispatch modes: a tracing mode must see the operator */
    PyObject *result; /* makes the operator's result while it reads nothing; None for no result */
    int64_t size, handle; /* number of arguments, and the index of the table's handle */
} Shortcut;

static PyObject *first_of(PyObject *x) { return PyList_Check(x) && PyList_Size(x) > 0 ? PyList_GetItem(x, 0) : x; }

/* Returns 1 if a call with these arguments would read nothing. Traced tensors are of another type. */
static int does_nothing(const Shortcut *self, PyObject *args) {
    if (PyTuple_Size(args) != (Py_ssize_t)self->size || !ordinary(first_of(PyTuple_GetItem(args, 0)))) return 0;
    PyObject *handle = PyTuple_GetItem(args, (Py_ssize_t)self->handle);
    if (!PyLong_CheckExact(handle)) return 0;
    const Place *place = place_of((Value)PyLong_AsLongLong(handle));
    if (PyErr_Occurred() || (place && place->rows) || !plainly()) return 0;
    PyObject *modes = PyObject_CallObject(self->modes, NULL);
    int none = modes && PyLong_CheckExact(modes) && PyLong_AsLong(modes) == 0;
    Py_XDECREF(modes);
    return none;
}

static PyObject *shortcut_call(PyObject *object, PyObject *args, PyObject *kwargs) {
    Shortcut *self = (Shortcut *)object;
    if (!(kwargs && PyDict_Size(kwargs)) && does_nothing(self, args)) {
        if (self->result != Py_None) return PyObject_CallObject(self->result, NULL);
        Py_RETURN_NONE;
    }
    if (!forgive()) return NULL;
    return PyObject_Call(self->slow, args, kwargs);
}

static int shortcut_init(PyObject *object, PyObject *args, PyObject *kwargs) {
    Shortcut *self = (Shortcut *)object;
    PyObject *values[3], **places[] = {&self->slow, &self->modes, &self->result};
    long long size, handle;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "OOOLL", values, values + 1, values + 2, &size, &handle)) return -1;
    if (size < 1 || handle < 0 || handle >= size) {
        PyErr_SetString(PyExc_ValueError, "the handle has to be one of the arguments");
        return -1;
    }
    for (int i = 0; i < 3; i++) {
        PyObject *old = *places[i];
        Py_INCREF(values[i]);
        *places[i] = values[i];
        Py_XDECREF(old);
    }
    self->size = size, self->handle = handle;
    return 0;
}

static void shortcut_free(PyObject *object) {
    Shortcut *self = (Shortcut *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->slow);
    Py_XDECREF(self->modes);
    Py_XDECREF(self->result);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyType_Slot shortcut_slots[] = {
    {Py_tp_doc, "Shortcut(slow, modes, result, size, handle): calls `slow`, an operator of `size` arguments, unless it would "
                "read nothing, by the table at the place `handle`; then returns what `result` makes, if it is not None."},
    {Py_tp_init, (void *)shortcut_init}, {Py_tp_call, (void *)shortcut_call}, {Py_tp_dealloc, (void *)shortcut_free},
    {0, NULL},
};
static PyType_Spec shortcut_spec = {
    "neuraldbg.capture._kernel.Shortcut", sizeof(Shortcut), 0, Py_TPFLAGS_DEFAULT, shortcut_slots,
};

static int add_graph(PyObject *module) {
    PyObject *shortcut = PyType_FromSpec(&shortcut_spec);
    int failed = !shortcut || PyModule_AddObjectRef(module, "Shortcut", shortcut);
    Py_XDECREF(shortcut);
    return failed ? -1 : 0;
}

PyDoc_STRVAR(serve_doc, "serve(addresses)\n--\n\n"
"Register the operators for tensors of the CPU. `addresses` are those of the functions `SHIM`, a dict by name.");

static PyObject *serve(PyObject *self, PyObject *addresses) {
    (void)self;
#define FIND(result, name, arguments)                                                                                  \
    {                                                                                                                  \
        PyObject *found = PyDict_GetItemString(addresses, #name);                                                      \
        if (!found) return PyErr_Format(PyExc_KeyError, "no address of %s", #name);                                    \
        name = (result(*) arguments)(intptr_t)whole(found);                                                            \
        if (PyErr_Occurred()) return NULL;                                                                             \
    }
    SHIM(FIND)
#undef FIND
    Handle library = NULL;
    if (aoti_torch_library_init_impl("neuraldbg", "CPU", __FILE__, __LINE__, &library) ||
        torch_library_impl(library, "observe", graph_observe, BUILT_FOR) ||
        torch_library_impl(library, "observe_at", graph_observe_at, BUILT_FOR) ||
        torch_library_impl(library, "observe_gradients", graph_observe_gradients, BUILT_FOR) ||
        torch_library_impl(library, "observe_gradient_at", graph_observe_gradient_at, BUILT_FOR)) {
        if (library) aoti_torch_delete_library_object(library); /* else its operators would be found and read nothing */
        PyErr_SetString(PyExc_RuntimeError, "torch has refused the operators of compiled_ops.h");
        return NULL;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(point_doc, "point(handle, rows, clock)\n--\n\n"
"Say where the operators write what is read for a table: the addresses of its rows and of the seconds spent, 0 for\n"
"nowhere.");

static PyObject *point(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    (void)self;
    if (wrong(nargs, 3, "point")) return NULL;
    int64_t handle = whole(args[0]);
    double *rows = (double *)AT(args[1]), *clock = (double *)AT(args[2]);
    if (PyErr_Occurred()) return NULL;
    if (handle < 0 || handle >= (int64_t)PAGE * PAGE) return PyErr_Format(PyExc_ValueError, "too many tables");
    Place **page = pages + handle / PAGE;
    if (!*page && !(*page = calloc(PAGE, sizeof(Place)))) return PyErr_NoMemory();
    Place *place = *page + handle % PAGE;
    place->clock = clock; /* before the rows: a thread that finds rows uses the clock */
    place->rows = rows;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(functions_doc, "functions()\n--\n\nReturn the names of the functions of torch that `serve` needs.");

static PyObject *functions(PyObject *self, PyObject *none) {
    (void)self, (void)none;
#define NAME_OF(result, name, arguments) #name,
    static const char *const names[] = {SHIM(NAME_OF)};
#undef NAME_OF
    PyObject *found = PyTuple_New(sizeof names / sizeof *names);
    for (size_t i = 0; found && i < sizeof names / sizeof *names; i++) {
        PyObject *name = PyUnicode_FromString(names[i]);
        if (!name || PyTuple_SetItem(found, (Py_ssize_t)i, name)) Py_CLEAR(found);
    }
    return found;
}

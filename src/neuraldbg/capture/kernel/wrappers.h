/* Wrappers of torch functions without a frame of Python. Included by module.c.

   A StandIn calls a generator function of ours with the arguments, up to its yield; then the wrapped function; then the
   generator again. So no frame of ours is between the program and torch while torch's function runs: code that inspects
   its caller (torch.jit.script, warnings.warn, a traceback) finds the program. Attributes are those of the wrapped
   function. See guest/stand_in.py, which does the same in Python. */

#include <structmember.h>

typedef struct {
    PyObject_HEAD
    PyObject *original, *around;
    PyObject *weak;
} StandIn;

static struct {
    PyObject *method; /* types.MethodType */
    PyObject *close, *qualified, *reduce, *reduce_ex, *get, *call;
} standing;

/* The original's error stays set, unless the generator raises one while it is closed: a signal handler's. */
static void close_failed(PyObject *visit) {
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    PyObject *closed = PyObject_CallMethodObjArgs(visit, standing.close, NULL);
    if (closed) {
        Py_DECREF(closed);
        PyErr_Restore(type, error, trace);
        return;
    }
    PyObject *newer, *raised, *where;
    PyErr_NormalizeException(&type, &error, &trace);
    if (error && trace) PyException_SetTraceback(error, trace);
    PyErr_Fetch(&newer, &raised, &where);
    PyErr_NormalizeException(&newer, &raised, &where);
    if (raised && error && raised != error) PyException_SetContext(raised, error); /* takes the reference */
    else Py_XDECREF(error);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    PyErr_Restore(newer, raised, where);
}

static PyObject *stand_in_call(PyObject *object, PyObject *args, PyObject *kwargs) {
    PyObject *original = ((StandIn *)object)->original, *given = NULL, *value;
    PyObject *visit = PyObject_Call(((StandIn *)object)->around, args, kwargs);
    if (!visit) { /* wrong arguments: the original raises the right error */
        if (!PyErr_ExceptionMatches(PyExc_TypeError)) return NULL;
        PyErr_Clear();
        return PyObject_Call(original, args, kwargs);
    }
    PySendResult found = PyIter_Send(visit, Py_None, &given);
    if (found == PYGEN_ERROR) {
        Py_DECREF(visit);
        return NULL;
    }
    if (found == PYGEN_RETURN) { /* nothing to do after the call: usually no session is on */
        Py_XDECREF(given);
        Py_DECREF(visit);
        return PyObject_Call(original, args, kwargs);
    }
    Py_INCREF(original); /* the call may drop our last reference */
    if (given == Py_None) value = PyObject_Call(original, args, kwargs);
    else {
        PyObject *others = PyTuple_GetItem(given, 0), *named = others ? PyTuple_GetItem(given, 1) : NULL;
        value = named ? PyObject_Call(original, others, named) : NULL;
    }
    Py_DECREF(original);
    Py_DECREF(given);
    if (!value) close_failed(visit);
    else {
        found = PyIter_Send(visit, value, &given);
        if (found == PYGEN_ERROR) Py_CLEAR(value);
        else Py_XDECREF(given);
    }
    Py_DECREF(visit);
    return value;
}

static int is_name(PyObject *name, PyObject *other) { return PyUnicode_Compare(name, other) == 0; }

static PyObject *stand_in_getattr(PyObject *object, PyObject *name) {
    if (is_name(name, standing.reduce) || is_name(name, standing.reduce_ex) || is_name(name, standing.get) ||
        is_name(name, standing.call))
        return PyObject_GenericGetAttr(object, name);
    return PyObject_GetAttr(((StandIn *)object)->original, name);
}

static int stand_in_setattr(PyObject *object, PyObject *name, PyObject *value) {
    return PyObject_SetAttr(((StandIn *)object)->original, name, value);
}

static PyObject *stand_in_get(PyObject *object, PyObject *holder, PyObject *type) {
    (void)type;
    if (holder && holder != Py_None) return PyObject_CallFunctionObjArgs(standing.method, object, holder, NULL);
    Py_INCREF(object);
    return object;
}

static PyObject *stand_in_repr(PyObject *object) { return PyObject_Repr(((StandIn *)object)->original); }

/* Pickles as a function, by its name. */
static PyObject *stand_in_reduce(PyObject *object, PyObject *ignored) {
    (void)ignored;
    return PyObject_GetAttr(((StandIn *)object)->original, standing.qualified);
}

static PyObject *stand_in_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *original, *around;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "OO:StandIn", &original, &around)) return NULL;
    StandIn *self = (StandIn *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self) return NULL;
    Py_INCREF(original);
    Py_INCREF(around);
    self->original = original, self->around = around;
    return (PyObject *)self;
}

static int stand_in_visit(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((StandIn *)object)->original);
    Py_VISIT(((StandIn *)object)->around);
    return 0;
}

/* No Py_tp_clear: a holder may call it at any time, and its references do not lead back to it. */
static void stand_in_free(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    if (((StandIn *)object)->weak) PyObject_ClearWeakRefs(object);
    Py_CLEAR(((StandIn *)object)->original);
    Py_CLEAR(((StandIn *)object)->around);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyMethodDef stand_in_methods[] = {
    {"__reduce__", stand_in_reduce, METH_NOARGS, "Return the name by which it is pickled."}, {NULL, NULL, 0, NULL}};
static PyMemberDef stand_in_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(StandIn, weak), READONLY, NULL}, {NULL, 0, 0, 0, NULL}};

#define STAND_IN_SLOTS                                                                                                 \
    {Py_tp_doc, "StandIn(original, around): calls `original` between the halves of the generator that `around` makes."}, \
    {Py_tp_new, (void *)stand_in_new}, {Py_tp_call, (void *)stand_in_call},                                            \
    {Py_tp_getattro, (void *)stand_in_getattr}, {Py_tp_setattro, (void *)stand_in_setattr},                            \
    {Py_tp_repr, (void *)stand_in_repr}, {Py_tp_methods, (void *)stand_in_methods},                                    \
    {Py_tp_members, (void *)stand_in_members}, {Py_tp_traverse, (void *)stand_in_visit},                               \
    {Py_tp_dealloc, (void *)stand_in_free}, {0, NULL}

static PyType_Slot stand_in_slots[] = {{Py_tp_descr_get, (void *)stand_in_get}, STAND_IN_SLOTS};
static PyType_Spec stand_in_spec = {
    "neuraldbg.capture._kernel.StandIn", sizeof(StandIn), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_METHOD_DESCRIPTOR, stand_in_slots,
};
/* For a built-in function, which is no method of the class that holds it. */
static PyType_Slot builtin_slots[] = {STAND_IN_SLOTS};
static PyType_Spec builtin_spec = {
    "neuraldbg.capture._kernel.BuiltinStandIn", sizeof(StandIn), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    builtin_slots,
};

PyDoc_STRVAR(original_doc, "original(stand_in)\n--\n\nReturn the function that a StandIn stands for.");

static PyObject *stood_for(PyObject *module, PyObject *object) {
    (void)module;
    if ((destructor)PyType_GetSlot(Py_TYPE(object), Py_tp_dealloc) != stand_in_free) {
        PyErr_SetString(PyExc_TypeError, "not a StandIn");
        return NULL;
    }
    PyObject *original = ((StandIn *)object)->original;
    Py_INCREF(original);
    return original;
}

static int add_stand_ins(PyObject *module) {
    static const struct { PyObject **name; const char *said; } names[] = {
        {&standing.close, "close"},       {&standing.qualified, "__qualname__"},
        {&standing.reduce, "__reduce__"}, {&standing.reduce_ex, "__reduce_ex__"},
        {&standing.get, "__get__"},       {&standing.call, "__call__"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!(*names[i].name = PyUnicode_InternFromString(names[i].said))) return -1;
    PyObject *types = PyImport_ImportModule("types");
    standing.method = types ? PyObject_GetAttrString(types, "MethodType") : NULL;
    Py_XDECREF(types);
    PyObject *function = PyType_FromSpec(&stand_in_spec), *builtin = PyType_FromSpec(&builtin_spec);
    int failed = !standing.method || !function || !builtin || PyModule_AddObjectRef(module, "StandIn", function) ||
                 PyModule_AddObjectRef(module, "BuiltinStandIn", builtin);
    Py_XDECREF(function);
    Py_XDECREF(builtin);
    return failed ? -1 : 0;
}

/* Objects of the program by their class, found among all that Python's garbage collector tracks. Included by
   module.c. */

PyDoc_STRVAR(instances_doc, "instances(kind)\n--\n\n"
"Return the objects of a class and its subclasses that Python's garbage collector knows, as a list.\n\n"
"Among all objects are some that another thread is still making: a tuple that is held by anybody else cannot be\n"
"completed, and ends that thread with a SystemError. So the list of all is gone before any other thread runs.");

static PyObject *instances(PyObject *self, PyObject *kind) {
    (void)self;
    if (!PyType_Check(kind)) {
        PyErr_SetString(PyExc_TypeError, "instances() takes a class");
        return NULL;
    }
    PyObject *collector = PyImport_ImportModule("gc"), *found = PyList_New(0);
    PyObject *look = collector ? PyObject_GetAttrString(collector, "get_objects") : NULL;
    PyObject *all = look && found ? PyObject_CallObject(look, NULL) : NULL;
    Py_XDECREF(collector);
    Py_XDECREF(look);
    int failed = !all || !PyList_Check(all);
    Py_ssize_t n = failed ? 0 : PyList_Size(all);
    for (Py_ssize_t i = 0; i < n && !failed; i++) { /* nothing here runs any Python */
        PyObject *object = PyList_GetItem(all, i);
        if (PyType_IsSubtype(Py_TYPE(object), (PyTypeObject *)kind)) failed = PyList_Append(found, object) < 0;
    }
    Py_XDECREF(all);
    if (failed) Py_CLEAR(found);
    return found;
}

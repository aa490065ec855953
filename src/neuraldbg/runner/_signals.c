/* Signals that end a process, caught below Python: the program that is watched sees them as it would without us.

`signal.signal` would show: a program that asks whether anybody handles SIGTERM (Lightning does), or that calls the
handler it finds, would do something else. So the signal's action is set here, where Python keeps no account of it, and
what is to be done is handed to Python as another signal, of which no program takes notice: by PyErr_SetInterruptEx,
which may be called in a handler, and runs in the main thread between two of the program's instructions. Where none
comes to an end within some seconds, as in a collective that hangs, the process ends without a word.

All that is called in a handler is in POSIX's list of what may be. */

#include <Python.h>

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static pid_t owner;
static int stand_in;
static unsigned int stuck_s;
static volatile sig_atomic_t got;

static void die(int number)
{
    signal(number, SIG_DFL);
    kill(getpid(), number);
}

static void on_stuck(int number)
{
    (void)number;
    die(got);
}

static void limit(unsigned int seconds)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_stuck;
    sigaction(SIGALRM, &action, NULL); /* the program's own timer has no more to say: without us it would have ended */
    alarm(seconds);
}

static void on_signal(int number)
{
    int before = errno;
    if (getpid() != owner || got) { /* a forked child, or the second time */
        die(number);
    }
    else {
        got = number;
        limit(stuck_s);
        PyErr_SetInterruptEx(stand_in);
    }
    errno = before;
}

static PyObject *py_arm(PyObject *module, PyObject *args)
{
    int number;
    struct sigaction action;
    (void)module;
    if (!PyArg_ParseTuple(args, "iiI:arm", &number, &stand_in, &stuck_s)) {
        return NULL;
    }
    if (sigaction(number, NULL, &action) || (action.sa_flags & SA_SIGINFO) || action.sa_handler != SIG_DFL) {
        Py_RETURN_FALSE;
    }
    owner = getpid();
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal; /* without SA_RESTART, as Python's own: a wait ends, and Python looks for signals */
    action.sa_flags = SA_ONSTACK;
    if (sigaction(number, &action, NULL)) {
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_TRUE;
}

static PyObject *py_disarm(PyObject *module, PyObject *args)
{
    int number;
    struct sigaction action;
    (void)module;
    if (!PyArg_ParseTuple(args, "i:disarm", &number)) {
        return NULL;
    }
    if (!sigaction(number, NULL, &action) && !(action.sa_flags & SA_SIGINFO) && action.sa_handler == on_signal) {
        signal(number, SIG_DFL);
    }
    Py_RETURN_NONE;
}

static PyObject *py_received(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyLong_FromLong(got);
}

static PyObject *py_limit(PyObject *module, PyObject *args)
{
    unsigned int seconds;
    (void)module;
    if (!PyArg_ParseTuple(args, "I:limit", &seconds)) {
        return NULL;
    }
    limit(seconds);
    Py_RETURN_NONE;
}

static int last;

static void on_exit_of_python(void)
{
    if (getpid() == owner) { /* and no child that was forked meanwhile */
        die(last);
    }
}

static PyObject *py_at_exit(PyObject *module, PyObject *args)
{
    (void)module;
    if (!PyArg_ParseTuple(args, "i:at_exit", &last)) {
        return NULL;
    }
    owner = getpid();
    return PyBool_FromLong(Py_AtExit(on_exit_of_python) == 0);
}

static PyMethodDef methods[] = {
    {"arm", py_arm, METH_VARARGS,
     "arm(number, stand_in, seconds)\n\nHave Python's handler of the signal `stand_in` called when the signal `number`"
     " comes, and end the process by it where that has not happened within some seconds. Returns False, and changes"
     " nothing, where the signal would not end the process."},
    {"disarm", py_disarm, METH_VARARGS, "disarm(number)\n\nLet a signal end the process at once again."},
    {"received", py_received, METH_NOARGS, "received()\n\nReturn the number of the signal that came, 0 for none."},
    {"limit", py_limit, METH_VARARGS, "limit(seconds)\n\nEnd the process after some seconds by the signal that came."},
    {"at_exit", py_at_exit, METH_VARARGS,
     "at_exit(number)\n\nEnd the process by a signal when Python has come to its end. Returns False where that cannot be."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_signals", "Signals that end a process, caught below Python.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__signals(void) { return PyModule_Create(&definition); }

/* What all files that define functions of the Python module share. */
#ifndef SIRGCN_BINDING_H
#define SIRGCN_BINDING_H

#include "fields.h"

static inline int refuse_value(const char *function, const char *argument, int value) {
    PyErr_Format(PyExc_ValueError, "%s: argument %s: there is no number %d", function, argument, value);
    return 0;
}

static inline int is_thread_count(const char *function, int threads) {
    return threads > 0 ? 1 : refuse_value(function, "threads", threads);
}

static inline PyObject *none_unless(int failed) {
    if (failed) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* Every function of the module has this form. `arguments` are those of the call. */
#define FUNCTION_OF(linkage, name)                                                                            \
    static PyObject *call_##name(Arguments arguments);                                                       \
    linkage PyObject *py_##name(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {  \
        (void)self;                                                                                          \
        return call_##name((Arguments){args, count, names});                                                 \
    }                                                                                                        \
    static PyObject *call_##name(Arguments arguments)

#define FUNCTION(name) FUNCTION_OF(static, name)

/* The functions of binding_sample.c. */
#define DECLARED(name) \
    __attribute__((visibility("hidden"))) PyObject *py_##name(PyObject *, PyObject *const *, Py_ssize_t, PyObject *)
DECLARED(group_targets);
DECLARED(count_drawn);
DECLARED(draw);
DECLARED(number);

#endif

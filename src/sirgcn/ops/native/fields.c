#include "fields.h"

#include <stdint.h>
#include <string.h>

static int refuse(const char *function, const char *argument, const char *reason) {
    PyErr_Format(PyExc_TypeError, "%s: argument %s: %s", function, argument, reason);
    return 0;
}

/* The place of the field with this name: first the expected place, then all others; -1 if there is none. */
static int find_field(const Field *fields, int num_fields, int expected, const char *name) {
    if (expected < num_fields && !strcmp(fields[expected].name, name)) return expected;
    for (int i = 0; i < num_fields; i++)
        if (!strcmp(fields[i].name, name)) return i;
    return -1;
}

static int set_field(char *structure, const char *function, const Field *field, PyObject *value) {
    char *place = structure + field->offset;
    if (field->type == FIELD_DOUBLE) {
        const double number = PyFloat_AsDouble(value);
        if (PyErr_Occurred()) return refuse(function, field->name, "expected a number");
        memcpy(place, &number, sizeof number);
        return 1;
    }
    if (field->type == FIELD_ADDRESS) {
        void *const address = PyLong_Check(value) ? PyLong_AsVoidPtr(value) : 0;
        if (!PyLong_Check(value) || PyErr_Occurred()) return refuse(function, field->name, "expected an address");
        memcpy(place, &address, sizeof address);
        return 1;
    }
    const long long number = PyLong_Check(value) ? PyLong_AsLongLong(value) : 0;
    if (!PyLong_Check(value) || PyErr_Occurred()) return refuse(function, field->name, "expected a whole number");
    if (field->type == FIELD_INT64) {
        const int64_t wide = number;
        memcpy(place, &wide, sizeof wide);
        return 1;
    }
    const int narrow = (int)number;
    if (narrow != number) return refuse(function, field->name, "expected a smaller number");
    memcpy(place, &narrow, sizeof narrow);
    return 1;
}

int fill(void *structure, const char *function, const Field *fields, int num_fields, Arguments arguments) {
    const Py_ssize_t named = arguments.names ? PyTuple_Size(arguments.names) : 0;
    if (arguments.count) {
        PyErr_Format(PyExc_TypeError, "%s: expected every argument by its name, got %zd without one", function, arguments.count);
        return 0;
    }
    uint64_t seen = 0;
    int expected = 0;
    for (Py_ssize_t i = 0; i < named; i++) {
        const char *name = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(arguments.names, i), 0);
        if (!name) return 0;
        const int at = find_field(fields, num_fields, expected, name);
        if (at < 0) return refuse(function, name, "there is none of this name");
        if (seen >> at & 1) return refuse(function, name, "expected it once");
        if (!set_field(structure, function, &fields[at], arguments.values[i])) return 0;
        seen |= (uint64_t)1 << at;
        expected = at + 1;
    }
    for (int i = 0; i < num_fields; i++)
        if (!(seen >> i & 1) && !fields[i].is_optional) return refuse(function, fields[i].name, "it is missing");
    return 1;
}

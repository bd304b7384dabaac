/* Structures that are filled from the keyword arguments of a call in Python, by the names of their fields. */
#ifndef SIRGCN_FIELDS_H
#define SIRGCN_FIELDS_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <stddef.h>

typedef enum { FIELD_INT, FIELD_INT64, FIELD_DOUBLE, FIELD_ADDRESS } FieldType;

typedef struct {
    const char *name;
    FieldType type;
    int is_optional; /* it is 0 or null if the call leaves it out */
    size_t offset;
} Field;

#define FIELD_NAMED(name, structure, member, type, is_optional) {name, type, is_optional, offsetof(structure, member)}
#define INT(structure, member) FIELD_NAMED(#member, structure, member, FIELD_INT, 0)
#define INT64(structure, member) FIELD_NAMED(#member, structure, member, FIELD_INT64, 0)
#define ADDRESS(structure, member) FIELD_NAMED(#member, structure, member, FIELD_ADDRESS, 0)
#define OPTIONAL_ADDRESS(structure, member) FIELD_NAMED(#member, structure, member, FIELD_ADDRESS, 1)

/* The arguments of a call: `count` positional values, then the keyword values, whose names are in `names`. */
typedef struct {
    PyObject *const *values;
    Py_ssize_t count;
    PyObject *names;
} Arguments;

/* Returns 1, or 0 with a TypeError that names the function and the argument that is unknown, missing, given twice or of a wrong
   type. Arguments in the order of the fields are found at once, others by a search. There are at most 64 fields. */
__attribute__((visibility("hidden"))) int
fill(void *structure, const char *function, const Field *fields, int num_fields, Arguments arguments);

#define FILL(structure, function, fields, arguments) \
    fill(&(structure), function, fields, (int)(sizeof(fields) / sizeof(Field)), arguments)

#endif

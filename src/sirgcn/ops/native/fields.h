/* Structures filled from the keyword arguments of a call in Python, field by field and by name. */
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
    int is_optional; /* 0 or null where the call leaves it out */
    size_t offset;
} Field;

#define FIELD_NAMED(name, structure, member, type, is_optional) {name, type, is_optional, offsetof(structure, member)}
#define INT(structure, member) FIELD_NAMED(#member, structure, member, FIELD_INT, 0)
#define INT64(structure, member) FIELD_NAMED(#member, structure, member, FIELD_INT64, 0)
#define ADDRESS(structure, member) FIELD_NAMED(#member, structure, member, FIELD_ADDRESS, 0)
#define OPTIONAL_ADDRESS(structure, member) FIELD_NAMED(#member, structure, member, FIELD_ADDRESS, 1)

/* What a call brings: values behind `count` positional ones, and the names of the values. */
typedef struct {
    PyObject *const *values;
    Py_ssize_t count;
    PyObject *names;
} Arguments;

/* 1, or 0 with a TypeError that names the function and the argument: one that is unknown, missing, given twice or of a wrong
   type. Arguments in the order of the fields are found at once, others by a search. At most 64 fields. */
__attribute__((visibility("hidden"))) int
fill(void *structure, const char *function, const Field *fields, int num_fields, Arguments arguments);

#define FILL(structure, function, fields, arguments) \
    fill(&(structure), function, fields, (int)(sizeof(fields) / sizeof(Field)), arguments)

#endif

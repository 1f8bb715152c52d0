/*
 * Tests that begin with a rig and end with it: their body is a function of the
 * rig, and of the row of the loop (_i).
 */
#ifndef HOLDFAST_TESTS_UNIT_RIG_TEST_H
#define HOLDFAST_TESTS_UNIT_RIG_TEST_H

#include <check.h>

#define RIG_TEST_AS(name, type, begin, end)     \
    static void name##_body(type *rig, int _i); \
    START_TEST(name)                            \
    {                                           \
        type *rig = (begin);                    \
        name##_body(rig, _i);                   \
        end(rig);                               \
    }                                           \
    END_TEST                                    \
    static void name##_body(                    \
        CK_ATTRIBUTE_UNUSED type *rig, CK_ATTRIBUTE_UNUSED int _i)

/* How many rows a table has. */
#define ROWS(table) (int)(sizeof(table) / sizeof((table)[0]))

#endif

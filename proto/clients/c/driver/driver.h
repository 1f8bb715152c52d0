/*
 * Shared by the files of the driver: see main.c.
 */
#ifndef HOLDFAST_CLIENT_DRIVER_H
#define HOLDFAST_CLIENT_DRIVER_H

#include "proto/clients/c/holdfast.h"

#define DRIVER_WORDS   64
#define DRIVER_MEMBERS 64

enum driver_kind {
    DRIVER_LOCK,
    DRIVER_AWAIT,
    DRIVER_WATCH,
    DRIVER_MEMBERS_WATCH,
};

struct driver_member {
    uint64_t fence;
    char note[3 * HOLDFAST_NOTE_MAX + 1]; /* encoded */
};

/* The hold, wait or watch of an ID. */
struct driver_item {
    struct driver_item *next; /* owned */
    char id[32];
    enum driver_kind kind;
    uint64_t request; /* the LOCK, AWAIT or WATCH */
    char names[HOLDFAST_NAMES_MAX][HOLDFAST_NAME_MAX + 1];
    size_t name_count;
    char owner[HOLDFAST_OWNER_MAX + 1];
    uint64_t fences[HOLDFAST_NAMES_MAX];
    bool waits; /* the request has no final answer */
    bool held;
    bool detached;
    bool wanted;
    bool cancelled;
    bool listing;         /* a list of members has begun */
    char lost[32];        /* why; "": it is not lost */
    uint64_t deadline_ms; /* of a detached hold */

    /* The present operation: a request for each name. */
    const char *done; /* its result; NULL: nothing is told */
    uint64_t asked[HOLDFAST_NAMES_MAX];
    uint64_t asked_ms;
    uint64_t lease_ms; /* of a detached RENEW, else 0 */
    size_t open;
    char error[32];

    struct driver_member members[DRIVER_MEMBERS];
    size_t member_count;
};

/* words.c */

extern struct holdfast *driver_h; /* NULL: not connected */
extern struct driver_item *driver_items;

/* The value of `key`, or NULL; a duration in ms. */
const char *driver_key(char **words, const char *key);
uint64_t driver_duration(const char *text, uint64_t otherwise);

/* The deadline of a detached hold if its present RENEW is carried out. */
uint64_t driver_renew_end_ms(const struct driver_item *item);

/* act.c: carries out a command of `count` words. False: there is none such. */
bool driver_act(char **words, size_t count);

/* Begins to give all names back, with a delay= or NULL, which tells `done` at
 * the end; NULL: nothing is told. */
void driver_release(
    struct driver_item *item, const char *done, const char *delay);

/* tell.c: the results of an event, and of the end of the session. */
void driver_tell(const struct holdfast_event *event);
void driver_over(const char *code);

#endif

/*
 * Additions to the store's rig for tests of daemon/store/node/sentinel.c:
 * Sentinels and Redis that answer by themselves, except on silent links, and a
 * kept log.
 *
 * The links to Sentinels have the first numbers, in the configuration's order;
 * those to what they name follow: where there are three, the first master's is
 * number 3.
 */
#ifndef HOLDFAST_TESTS_UNIT_SENTINEL_RIG_H
#define HOLDFAST_TESTS_UNIT_SENTINEL_RIG_H

#include "tests/unit/store_rig.h"

#define WHO      "INFO server"
#define QUESTION "SENTINEL GET-MASTER-ADDR-BY-NAME shop"
#define TRUST_MS 2000

/* As srig_sentinel(), with nothing that waits for an answer. */
struct srig *sen_ready(void);

/* Time passes; all that is asked meanwhile is answered, at once. */
void sen_run(struct srig *rig, unsigned ms);

/* The links from `first` to `last` are left alone by sen_run(), or no more. */
void sen_silence(struct srig *rig, uint32_t first, uint32_t last);
void sen_wake(struct srig *rig, uint32_t first, uint32_t last);

/* Their answer from now on: 10.0.0.1 and that port; NULL: nil. */
void sen_name(struct srig *rig, unsigned sentinel, const char *port);
void sen_name_all(struct srig *rig, const char *port);

/* +switch-master is published. */
void sen_switched(struct srig *rig);

/* The link to a Redis that is there or under way; CONN_COUNT: there is none. */
uint32_t sen_find_conn(const struct srig *rig, uint16_t port);
bool sen_has_conn(const struct srig *rig, uint16_t port);
bool sen_no_conn(const struct srig *rig); /* to any */

/* Neither is a master trusted nor anything connected. */
void sen_no_master(const struct srig *rig);

/* An operation that is submitted now is carried out within that time. */
void sen_works(struct srig *rig, enum op_kind kind, unsigned ms);

/* The three Sentinels are silent, until no master is trusted any more. */
void sen_trust_ends(struct srig *rig);

/* In the next turn each of the three is asked, once; and answers. */
void sen_asked(struct srig *rig);
void sen_asked_anew(struct srig *rig);

/* None of the three has been asked anything. */
void sen_not_asked(struct srig *rig);

/* The answer to a question that was read long ago. */
void sen_answer_late(struct srig *rig, uint32_t link);

/* All commands that the link has are read, and none is a call. */
void sen_no_call(struct srig *rig, uint32_t link);

#endif

/*
 * The question to the broker of a hold. See audit_question.c.
 */
#ifndef HOLDFAST_CORE_FEATURE_AUDIT_QUESTION_H
#define HOLDFAST_CORE_FEATURE_AUDIT_QUESTION_H

#include "daemon/core/feature/audit_run.h"

/* Makes sure of a new finding. False: its broker has to answer first. */
bool question_ask(struct core *core, struct finding *finding);

/* Redis has published a message of this broker. The wait for answers to a
 * question begins with it. */
void question_told(struct core *core, struct text words);

/* Takes a question or an answer of another broker's audit. Malformed news is
 * ignored. True: the audit goes on, with the answer that it waited for. */
bool question_news(struct core *core, struct text news);

/* The time for an answer is over: asks once more. True: the audit goes on
 * without an answer. */
bool question_timer(struct core *core);

#endif

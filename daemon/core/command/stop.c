/*
 * The stop of the broker: the word to all sessions, and the end of grace.
 */
#include "daemon/core/command/command.h"

#include "daemon/core/feature/audit.h"

#include "daemon/base/assert.h"

/* Everybody's timer comes due, so that each is told in its own small step. */
static void
core_stop_sessions(struct core *core)
{
    require(core->stopping);
    for (uint32_t i = 0; i < core->sessions.touched; i++) {
        struct session *session = slab_at(&core->sessions, i);
        if (session != NULL)
            wheel_add(&core->wheel, &session->timer, core->now_us);
    }
}

void
core_stop(struct core *core)
{
    if (core->stopping)
        return;
    core->stopping = true;
    core->stop_us = us_add(core->now_us, core->settings.stop_grace_us);
    audit_stop(core);
    core_stop_sessions(core);
    for (uint32_t i = 0; i < core->requests.touched; i++) {
        struct request *request = slab_at(&core->requests, i);
        if (request == NULL)
            continue;
        if (request->command == COMMAND_AWAIT ||
            (request->command == COMMAND_LOCK && request->ticket != NULL &&
                request->state != REQUEST_ENDED))
            wheel_add(&core->wheel, &request->timer, core->now_us);
    }
}

void
core_stop_grace_over(struct core *core)
{
    require(core->stopping && core->stop_us != NEVER);
    core->stop_us = 0;
    core_stop_sessions(core);
}

bool
core_stopping(const struct core *core)
{
    return core->stopping;
}

bool
core_stopped(const struct core *core)
{
    bool stopped = core->stopping && core->sessions.used == 0 &&
                   core->tickets.used == 0 && core->ops.used == 0;

    require(!stopped || (core->requests.used == 0 && core->owners.used == 0));
    require(!stopped || (core->held == 0 && core->waiting == 0));
    return stopped;
}

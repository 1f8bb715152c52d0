/*
 * A log whose lines are kept: see log_kept.h.
 */
#include "tests/unit/log_kept.h"

#include <check.h>
#include <string.h>

static char kept[1 << 16];
static size_t kept_len;

static void
keep_line(enum log_level level, const char *line, size_t len)
{
    ck_assert_int_ge(level, LOG_ERROR);
    ck_assert_uint_lt(kept_len + len + 2, sizeof(kept));
    memcpy(kept + kept_len, line, len);
    kept_len += len;
    kept[kept_len++] = '\n';
    kept[kept_len] = '\0';
}

void
log_keep(enum log_level threshold)
{
    kept_len = 0;
    kept[0] = '\0';
    log_init(keep_line, threshold);
}

void
log_keep_no_more(void)
{
    log_init(NULL, LOG_ERROR);
}

const char *
log_kept(void)
{
    return kept;
}

unsigned
log_kept_count(const char *part)
{
    unsigned count = 0;

    for (const char *at = kept; (at = strstr(at, part)) != NULL; at++)
        count++;
    return count;
}

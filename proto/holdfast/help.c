/*
 * The help pages, one for each command. The manual has the whole story; this is
 * what fits a screen.
 */
#include "proto/holdfast/command.h"

#include <stdio.h>
#include <string.h>

static const char help_all[] =
    "holdfast [-a ADDR] [-o FORMAT] COMMAND ...\n"
    "\n"
    "  run KEY -- PROGRAM ARG...  run a program while holding a lock\n"
    "  lock KEY                   hold a lock until the input ends\n"
    "  show KEY                   who holds a lock and who waits for it\n"
    "  locks                      the locks of this broker\n"
    "  sessions                   the sessions of this broker\n"
    "  ping                       time of a round trip\n"
    "  raw                        lines of the protocol, in and out\n"
    "  help COMMAND               more about one of these (also COMMAND -h)\n"
    "\n"
    "  -a ADDR     HOST:PORT, [V6]:PORT or a socket's path; else what\n"
    "              HOLDFAST_ADDR says, else 127.0.0.1:4653\n"
    "  -o FORMAT   of lists: json (a JSON object on each line), tabs, "
    "columns;\n"
    "              else columns on a terminal, tabs elsewhere\n"
    "  -V, -h      version, this page\n"
    "\n"
    "A duration D is 1500 or 1500ms, 30s, 5m, 1h.\n";

static const char help_run[] =
    "holdfast run [--wait D] [--lease D] [--owner W] [--note W] KEY\n"
    "             -- PROGRAM ARG...\n"
    "\n"
    "Takes the lock KEY, runs PROGRAM while it is held, gives it back when\n"
    "PROGRAM ends. Options may also stand behind KEY.\n"
    "\n"
    "  --wait D    wait for the lock for at most D (0: not at all); else for "
    "as\n"
    "              long as it takes\n"
    "  --lease D   hold it for at most D; else for as long as PROGRAM runs\n"
    "  --owner W   hold it as this owner\n"
    "  --note W    a note for those who look at the lock\n"
    "\n"
    "PROGRAM runs in a process group of its own, the foreground group where "
    "the\n"
    "input is a terminal; signals are passed on to it. It finds "
    "HOLDFAST_LOCK,\n"
    "HOLDFAST_FENCE and HOLDFAST_SESSION in its environment.\n"
    "\n"
    "Where the lock is lost, all of the group ends before anybody else may "
    "hold\n"
    "the lock: at the end of a lease it has TERM first and KILL in time; "
    "after\n"
    "the broker said LOST it has 100 ms; when the connection to the broker "
    "ends\n"
    "it is killed at once, since a living broker gives the lock away at once.\n"
    "When holdfast itself is killed, the group is killed as well.\n"
    "\n"
    "What PROGRAM leaves running in the background is left alone when PROGRAM\n"
    "ends, and is no longer under the lock.\n"
    "\n"
    "Exit status: that of PROGRAM, or 128 and the number of its signal;\n"
    "  123  the lock was lost\n"
    "  124  the lock was not acquired in time\n"
    "  125  trouble: no broker within 10 s (or --wait), bad usage ...\n"
    "  126  PROGRAM cannot be executed\n"
    "  127  PROGRAM was not found\n";

static const char help_lock[] =
    "holdfast lock [--wait D] [--lease D] [--owner W] [--note W] KEY\n"
    "\n"
    "Takes the lock KEY, prints `fence=F ttl_ms=T`, and holds it until the "
    "end\n"
    "of the input or a signal (INT, TERM, HUP, QUIT). Options as for run.\n"
    "\n"
    "Exit status: 0; 123 the lock was lost; 124 it was not acquired in time;\n"
    "125 trouble.\n";

static const char help_show[] = "holdfast show [-o FORMAT] KEY\n"
                                "\n"
                                "Who holds the lock KEY and who waits for it, "
                                "at any broker, in the order of\n"
                                "the queue. With tabs: kind, position, "
                                "session, broker, name, owner, fence,\n"
                                "ttl_ms, age_ms, note.\n";

static const char help_locks[] =
    "holdfast locks [-o FORMAT]\n"
    "\n"
    "The locks that the sessions of this broker hold or wait for. With tabs:\n"
    "name, state, holders, waiters, session, client, owner, fence, age_ms, "
    "note.\n";

static const char help_sessions[] =
    "holdfast sessions [-o FORMAT]\n"
    "\n"
    "The sessions of this broker. With tabs: session, name, peer, age_ms,\n"
    "idle_ms, holds, waits.\n";

static const char help_ping[] =
    "holdfast ping\n"
    "\n"
    "Connects, asks the broker for a sign of life, and prints how long that\n"
    "took. Exit status 125 where there is no broker.\n";

static const char help_raw[] =
    "holdfast raw\n"
    "\n"
    "Sends the input to the broker as it is, and prints what it says, until "
    "the\n"
    "broker closes the connection; which it does after the end of the input,\n"
    "when all is answered. Try:  echo HELP | holdfast raw\n";

bool
help_print(const char *command)
{
    static const struct {
        const char *name;
        const char *text;
    } pages[] = {
        {"run", help_run},
        {"lock", help_lock},
        {"show", help_show},
        {"locks", help_locks},
        {"sessions", help_sessions},
        {"ping", help_ping},
        {"raw", help_raw},
    };

    if (command == NULL) {
        (void)fputs(help_all, stdout);
        return true;
    }
    for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
        if (strcmp(command, pages[i].name) == 0) {
            (void)fputs(pages[i].text, stdout);
            return true;
        }
    }
    return false;
}

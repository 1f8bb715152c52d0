/*
 * The help pages, one for each command. The manual has the whole story; this is
 * what fits a screen.
 */
#include "proto/holdfast/command.h"

#include <stdio.h>
#include <string.h>

static const char help_all[] =
    "holdfast [-a ADDR] [-u USER -s FILE] [--tls] [-o FORMAT] COMMAND ...\n"
    "\n"
    "  run KEY -- PROGRAM ARG...  run a program while holding a lock\n"
    "  lock KEY                   hold a lock until the input ends\n"
    "  show KEY                   who holds a lock and who waits for it\n"
    "  watch KEY                  tell when a lock is held, and when free\n"
    "  locks                      the locks of this broker\n"
    "  sessions                   the sessions of this broker\n"
    "  slow                       what took long, was lost, or a deadlock\n"
    "  status                     whether the broker can grant locks; if not, "
    "why\n"
    "  top                        what is waited for most, and by whom\n"
    "  audit                      what is odd about all locks in Redis\n"
    "  break KEY                  take a lock from its holders\n"
    "  kill SESSION               end a session of this broker\n"
    "  drain                      have this broker stop\n"
    "  bench [KEY-PREFIX]         how fast a broker is\n"
    "  ping                       time of a round trip\n"
    "  raw                        lines of the protocol, in and out\n"
    "  secret USER                a secret as it stands in a broker's file\n"
    "  help COMMAND               more about one of these (also COMMAND -h)\n"
    "\n"
    "  -a ADDR     HOST:PORT, [V6]:PORT or a socket's path, or several with\n"
    "              commas between them, of brokers before the same Redis; "
    "else\n"
    "              what HOLDFAST_ADDR says, else 127.0.0.1:4653 (TLS: 4655)\n"
    "  -u USER     who to be, for brokers that have users; else what\n"
    "              HOLDFAST_USER says, else nobody\n"
    "  -s FILE     the file whose one line is the secret of USER; else what\n"
    "              HOLDFAST_SECRET_FILE says\n"
    "  --tls       speak TLS, with a broker that has a port for it, usually "
    "4655;\n"
    "              so does any of these:\n"
    "    --tls-ca FILE           CAs that may sign the broker's certificate,\n"
    "                            and no others; else those of the system\n"
    "    --tls-cert FILE         this client's certificate, and\n"
    "    --tls-key FILE          its key; all three are PEM files\n"
    "    --tls-name NAME         that the broker's must have, in place of "
    "HOST\n"
    "    --tls-verify full|ca    ca: whatever the broker's names\n"
    "              else what HOLDFAST_TLS (1), HOLDFAST_TLS_CA, "
    "HOLDFAST_TLS_CERT\n"
    "              and so on say\n"
    "  -o FORMAT   of lists: json (a JSON object on each line), tabs, "
    "columns;\n"
    "              else columns on a terminal, tabs elsewhere\n"
    "  -V, -h      version, this page\n"
    "\n"
    "A duration D is 1500ms, 30s, 5m, 1h, or 0.\n";

#define HELP_ASK                                                               \
    "[--wait D] [--lease D] [--keep D] [--delay D]\n"                          \
    "             [--shared | --limit N [--permits K]] [--owner W] [--note W]" \
    "\n"

static const char help_run[] =
    "holdfast run " HELP_ASK "             KEY... -- PROGRAM ARG...\n"
    "\n"
    "Takes the lock KEY, runs PROGRAM while it is held, gives it back when\n"
    "PROGRAM ends. Of several KEYs it takes all or none. Options may also "
    "stand\n"
    "behind KEY.\n"
    "\n"
    "  --wait D     wait for the lock for at most D (0: not at all); else for\n"
    "               as long as it takes\n"
    "  --lease D    hold it for at most D; else for as long as PROGRAM runs\n"
    "  --shared     hold it together with others that share it\n"
    "  --limit N    hold it together with others, N at most\n"
    "  --permits K  count as K of the N\n"
    "  --delay D    should this end without giving it back, nobody is granted\n"
    "               it for D\n"
    "  --keep D     go on without a broker for at most D, 30s unless told\n"
    "               otherwise; 0: not at all. A host that is gone keeps its\n"
    "               lock for so long from when the broker has noticed\n"
    "               the silence, after some 11 s\n"
    "  --owner W    hold it as this owner\n"
    "  --note W     a note for those who look at the lock\n"
    "\n"
    "PROGRAM runs in a process group of its own, the foreground group where "
    "the\n"
    "input is a terminal; signals are passed on to it. It finds "
    "HOLDFAST_LOCK,\n"
    "HOLDFAST_FENCE and HOLDFAST_SESSION in its environment; of several KEYs\n"
    "these and their fences, with blanks between them.\n"
    "\n"
    "A KEY that a run above this one holds, at the same address, is refused "
    "with\n"
    "125, unless both have --shared or --limit, or --wait ends the wait.\n"
    "\n"
    "Where the broker ends or drains, the session moves to another address, "
    "or\n"
    "the same, within --keep; PROGRAM runs on, and who waits keeps the place.\n"
    "\n"
    "When the lock is lost, PROGRAM ends before anybody else may hold the "
    "lock.\n"
    "TERM goes to the group. KILL then ends every process that PROGRAM has\n"
    "started, in the group or not: in time before the end of a lease, or "
    "before\n"
    "the deadline when no broker answers; 100 ms after the broker said LOST.\n"
    "With --keep 0 KILL comes at once when the connection to the broker ends,\n"
    "since a living broker gives the lock away at once.\n"
    "\n"
    "When holdfast itself is killed, its holdfast-guard, a process beside it,\n"
    "kills the group as well, and then ends the lock, or leaves the queue. "
    "When\n"
    "both are killed the lock is free after --keep at the latest.\n"
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
    "holdfast lock " HELP_ASK "             KEY...\n"
    "\n"
    "Takes the lock KEY, prints `fence=F ttl_ms=T`, and holds it until the "
    "end\n"
    "of the input or a signal (INT, TERM, HUP, QUIT). Of several KEYs it "
    "takes\n"
    "all or none, and prints `fence=F1,F2`. Options as for run.\n"
    "\n"
    "Exit status: 0; 123 the lock was lost; 124 it was not acquired in time;\n"
    "125 trouble.\n";

static const char help_show[] = "holdfast show [-o FORMAT] KEY\n"
                                "\n"
                                "Who holds the lock KEY and who waits for it, "
                                "at any broker, in the order of\n"
                                "the queue. With tabs: kind, position, "
                                "session, broker, name, owner, fence,\n"
                                "ttl_ms, age_ms, note, mode, permits.\n";

static const char help_locks[] =
    "holdfast locks [-o FORMAT]\n"
    "\n"
    "The locks that the sessions of this broker hold or wait for. With tabs:\n"
    "name, state, holders, waiters, session, client, owner, fence, age_ms, "
    "note,\n"
    "mode, permits.\n";

static const char help_sessions[] =
    "holdfast sessions [-o FORMAT]\n"
    "\n"
    "The sessions of this broker. With tabs: session, name, peer, age_ms,\n"
    "idle_ms, holds, waits.\n";

static const char help_slow[] =
    "holdfast slow [--kind slow|lost|deadlock] [--limit N] [-o FORMAT]\n"
    "\n"
    "What this broker remembers, newest first: what Redis was asked for and "
    "took\n"
    "slow.threshold or longer, by the stages in which it spent that; holds "
    "that\n"
    "were lost; waits that a circle of owners has ended. With tabs: kind, "
    "age_ms,\n"
    "name, session, client, owner, op, result, total_us, queued_us, "
    "redis_us,\n"
    "confirm_us, reason, fence, late_us, cycle. JSON has more.\n";

static const char help_top[] =
    "holdfast top [-n N] [--interval D] [-o FORMAT]\n"
    "\n"
    "The locks of this broker that were waited for most in the last minutes, "
    "the\n"
    "oldest holds and the oldest waits. On a terminal that is drawn anew each\n"
    "second, as far as there is room, until q or Ctrl-C; with rates, where "
    "one\n"
    "may ask for STATS. Elsewhere, or with -o, it is printed once.\n"
    "\n"
    "  -n N          at most N (up to 100) of each; else, printed once, 10\n"
    "  --interval D  ask each D, from 100ms on\n"
    "\n"
    "With tabs: kind (contended, holder or waiter), name, waits, waited_ms,\n"
    "waiters, age_ms, session, client, owner, fence, note, mode, permits.\n";

static const char help_bench[] =
    "holdfast bench [-c CONNECTIONS] [-t DURATION] [--keys N] [--wait D]\n"
    "               [-o FORMAT] [KEY-PREFIX]\n"
    "\n"
    "Takes locks and gives them back for some time, and prints how often and "
    "how\n"
    "fast that was. The broker and its Redis have much to do meanwhile.\n"
    "\n"
    "  -c CONNECTIONS  each does one thing at a time; 10, at most 1000\n"
    "  -t DURATION     5s, at most 1h; Ctrl-C ends it sooner\n"
    "  --keys N        of so many locks, KEY-PREFIX0 and on (bench/0); else "
    "as\n"
    "                  many as connections. With fewer they wait for one "
    "another\n"
    "  --wait D        as of run; who waits longer counts as an error\n"
    "\n"
    "With tabs: op (pair, lock, unlock), count, per_second, p50_us, p99_us,\n"
    "max_us, errors, connections, keys, time_ms. The time of a pair is from "
    "the\n"
    "sending of its LOCK to the answer to its UNLOCK.\n"
    "\n"
    "Exit status: 0; 1 there were errors; 125 trouble.\n";

static const char help_audit[] =
    "holdfast audit [-o FORMAT]\n"
    "\n"
    "Has the broker look over all locks in Redis, and prints what is odd: "
    "held or\n"
    "waited for longer than the broker's configuration expects, left behind "
    "by a\n"
    "broker that is gone, or no sound lock. Nothing is changed. With tabs: "
    "kind,\n"
    "name, age_ms, session, broker, client, owner, fence, ttl_ms, waiters, "
    "note, why.\n"
    "\n"
    "Exit status: 0 nothing is odd; 1 something is; 125 trouble: no broker, "
    "another\n"
    "audit is under way, a node of Redis could not be asked.\n";

static const char help_status[] =
    "holdfast status [-o FORMAT]\n"
    "\n"
    "Prints each Redis node that the broker needs, and whether the broker can\n"
    "grant every lock now. With tabs: node, role, state (ready, settling,\n"
    "refusing or away), reason, since_ms, after_ms, text.\n"
    "\n"
    "Exit status: 0 it can; 1 it cannot; 125 trouble: no broker.\n";

static const char help_watch[] =
    "holdfast watch [-o FORMAT] KEY...\n"
    "\n"
    "A line for what each lock is now, and for each change: held, by whom, or\n"
    "free. Of changes that follow each other quickly maybe only the last. "
    "With\n"
    "tabs: event (held or free), lock, fence, holders, name, owner, note. "
    "Goes\n"
    "on at another broker, or when the broker is back, until a signal comes.\n";

static const char help_break[] =
    "holdfast break [--fence F] KEY\n"
    "\n"
    "Takes the lock KEY from its holders, which are told LOST; prints\n"
    "`holders=N`. With --fence only from the one that holds it with that "
    "fence.\n"
    "The next one has it when the holder's broker has given it back, or when\n"
    "the lease ends.\n";

static const char help_kill[] =
    "holdfast kill SESSION\n"
    "\n"
    "Ends a session of this broker, by the word that `holdfast sessions` and\n"
    "`holdfast show` have for it, and gives back what it holds.\n";

static const char help_drain[] =
    "holdfast drain\n"
    "\n"
    "Has the broker stop, as SIGTERM does: its clients move to other brokers,\n"
    "with what they hold.\n";

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
    "when all is answered. Who to be is one of the lines, AUTH: -u and -s are\n"
    "not looked at. Try:  echo HELP | holdfast raw\n";

static const char help_secret[] =
    "holdfast secret [--new FILE] USER\n"
    "\n"
    "Prints the line of USER for a broker's auth.users_file, with the secret\n"
    "hashed; rights are to be put behind it. The secret is one line of the\n"
    "input, of 16 bytes at least, which should be random: the hash is a fast\n"
    "one. With --new it is made, and written to FILE, which is not there yet\n"
    "and will be its owner's alone: the file for -s. Asks no broker.\n";

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
        {"slow", help_slow},
        {"status", help_status},
        {"top", help_top},
        {"audit", help_audit},
        {"watch", help_watch},
        {"break", help_break},
        {"kill", help_kill},
        {"drain", help_drain},
        {"bench", help_bench},
        {"ping", help_ping},
        {"raw", help_raw},
        {"secret", help_secret},
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

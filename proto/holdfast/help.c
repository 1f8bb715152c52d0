/*
 * The commands, with what each takes and the page that -h prints. The manual
 * has more.
 */
#include "proto/holdfast/command.h"

#include <string.h>

const char help_all[] =
    "holdfast [-a ADDR] [-u USER -s FILE] [--tls] [-o FORMAT] COMMAND ...\n"
    "\n"
    "  run KEY -- PROGRAM ARG...  run a program while holding a lock\n"
    "  lock KEY                   hold a lock until the input ends\n"
    "  unlock KEY                 release a detached hold\n"
    "  renew KEY                  set a new end for a detached hold\n"
    "  show KEY                   show the holders and waiters of a lock\n"
    "  watch KEY                  print when a lock is held, and when free\n"
    "  await KEY                  wait until nobody holds a lock\n"
    "  locks                      list the locks of this broker\n"
    "  sessions                   list the sessions of this broker\n"
    "  slow                       list slow operations, losses, deadlocks\n"
    "  status                     show whether the broker can grant locks\n"
    "  top                        show contended locks and old holds\n"
    "  audit                      check all locks in Redis\n"
    "  break KEY                  take a lock from its holders\n"
    "  resize KEY                 set another limit for a semaphore\n"
    "  kill SESSION               end a session of this broker\n"
    "  drain                      stop this broker\n"
    "  bench [KEY-PREFIX]         measure the speed of a broker\n"
    "  ping                       measure a round trip\n"
    "  raw                        send and print lines of the protocol\n"
    "  secret USER                hash a secret for a broker's file\n"
    "  help COMMAND               more about one of these (also COMMAND -h)\n"
    "\n"
    "  -a ADDR     HOST:PORT, [V6]:PORT or the path of a socket; several,\n"
    "              with commas, for brokers that share one Redis. Default:\n"
    "              HOLDFAST_ADDR, else 127.0.0.1:4653 (TLS: 4655)\n"
    "  -u USER     the user, for brokers that have users. Default:\n"
    "              HOLDFAST_USER\n"
    "  -s FILE     a file with the secret of USER on one line. Default:\n"
    "              HOLDFAST_SECRET_FILE\n"
    "  --tls       use TLS; the usual port is 4655. Each of these options\n"
    "              implies --tls:\n"
    "    --tls-ca FILE           CAs that may sign the broker's certificate;\n"
    "                            default: the CAs of the system\n"
    "    --tls-cert FILE         this client's certificate, and\n"
    "    --tls-key FILE          its key; all three are PEM files\n"
    "    --tls-name NAME         the name in the broker's certificate;\n"
    "                            default: HOST\n"
    "    --tls-verify full|ca    ca: accept any name in the certificate\n"
    "              Defaults: HOLDFAST_TLS (1), HOLDFAST_TLS_CA,\n"
    "              HOLDFAST_TLS_CERT and so on\n"
    "  -o FORMAT   of lists: json (a JSON object on each line), tabs or\n"
    "              columns; default: columns on a terminal, tabs elsewhere\n"
    "  -V, -h      print the version, or this page\n"
    "\n"
    "A duration D is 1500ms, 30s, 5m, 1h, or 0.\n";

#define HELP_ASK                                                      \
    "[--wait D] [--lease D] [--keep D] [--delay D]\n"                 \
    "             [--shared | --limit N [--permits K]] [--owner W]\n" \
    "             [--note W] [--tree] KEY..."

#define EXIT_USUAL                                                 \
    "\n"                                                           \
    "Exit status: 0; 1 the broker refused it; 64 bad usage; 125\n" \
    "trouble: no broker.\n"

_Static_assert(HOLDFAST_NAMES_MAX == 16, "texts below have the number");

static const struct usage usages[] = {
    {"run", 1, HOLDFAST_NAMES_MAX, "1 to 16 KEYs, and -- PROGRAM ARG...",
        "holdfast run " HELP_ASK " -- PROGRAM ARG...\n"
        "\n"
        "Takes the lock KEY, runs PROGRAM, and releases the lock when PROGRAM\n"
        "ends. Of several KEYs it takes all or none. Options may also follow\n"
        "KEY.\n"
        "\n"
        "  --wait D     wait for the lock for at most D (0: no wait);\n"
        "               default: no limit\n"
        "  --lease D    hold the lock for at most D; default: while PROGRAM\n"
        "               runs\n"
        "  --shared     take a shared lock\n"
        "  --limit N    take a permit of a semaphore with N permits\n"
        "  --permits K  take K permits\n"
        "  --delay D    lock-delay: after an end without a release nobody is\n"
        "               granted the lock for D\n"
        "  --keep D     continue without a broker for at most D; default:\n"
        "               30s; 0: not at all. The lock of a dead host stays for\n"
        "               D after the broker detects the silence, in about 11 s\n"
        "  --owner W    hold the lock as this owner\n"
        "  --note W     a note for viewers of the lock\n"
        "  --tree       KEY is a path with '/': its lock excludes locks with\n"
        "               --tree of the paths above it, and of its parts. It is\n"
        "               lost if the session moves to another broker\n"
        "\n"
        "PROGRAM runs in a process group of its own, the foreground group if\n"
        "the input is a terminal. holdfast passes signals on to it. Its\n"
        "environment has HOLDFAST_LOCK, HOLDFAST_FENCE and HOLDFAST_SESSION.\n"
        "With several KEYs the first two have all keys and fences, with\n"
        "blanks between them.\n"
        "\n"
        "A KEY that a run above this one holds, at the same address, is\n"
        "refused with 125, unless both have --shared or --limit, or --wait\n"
        "ends the wait. With --tree a part is refused for the whole, too.\n"
        "\n"
        "If the broker dies or drains, the session moves to another address,\n"
        "or to the same one, within --keep. PROGRAM runs on, and a waiter\n"
        "keeps its place.\n"
        "\n"
        "When the lock is lost, PROGRAM ends before anybody else may hold the\n"
        "lock. TERM goes to the group. KILL then ends every process that\n"
        "PROGRAM has started, in the group or not. It comes before the lease\n"
        "or the deadline ends, or 100 ms after the broker said LOST. With\n"
        "--keep 0 it comes at once when the connection to the broker ends,\n"
        "since a living broker gives the lock away at once.\n"
        "\n"
        "When holdfast itself is killed, its holdfast-guard, a process beside\n"
        "it, kills the group as well, and then ends the lock, or leaves the\n"
        "queue. When both are killed the lock is free after --keep at the\n"
        "latest.\n"
        "\n"
        "Background processes of PROGRAM run on after its end, without the\n"
        "lock.\n"
        "\n"
        "Exit status: that of PROGRAM, or 128 and the number of its signal;\n"
        "  123  the lock was lost\n"
        "  124  the lock was not acquired in time\n"
        "  125  trouble: no broker within 10 s (or --wait), bad usage ...\n"
        "  126  PROGRAM cannot be executed\n"
        "  127  PROGRAM was not found\n"},
    {"lock", 1, HOLDFAST_NAMES_MAX, "1 to 16 KEYs",
        "holdfast lock " HELP_ASK " [--detached]\n"
        "\n"
        "Takes the lock KEY, prints `fence=F ttl_ms=T`, and holds it until\n"
        "the end of the input or a signal (INT, TERM, HUP, QUIT). Of several\n"
        "KEYs it takes all or none, and prints `fence=F1,F2`. Options as for\n"
        "run.\n"
        "\n"
        "  --detached   of one KEY, with --lease D of at most 24h and without\n"
        "               --keep: print the fence and end. The hold stays until\n"
        "               D is over, or until `holdfast unlock` with its fence,\n"
        "               from any host\n"
        "\n"
        "Exit status: 0; 123 the lock was lost; 124 it was not acquired in\n"
        "time; 125 trouble, or bad usage.\n"},
    {"unlock", 1, 1, "one KEY",
        "holdfast unlock --fence F [--delay D] KEY\n"
        "\n"
        "Releases the detached hold of KEY with that fence. `holdfast lock`\n"
        "takes such holds.\n"
        "\n"
        "  --delay D    nobody is granted the lock for D after the release\n"
        "\n"
        "Exit status: 0; 1 the broker refused it, for instance because the\n"
        "hold has ended; 64 bad usage; 125 trouble: no broker.\n"},
    {"renew", 1, 1, "one KEY",
        "holdfast renew --fence F --lease D KEY\n"
        "\n"
        "Sets a new end for the detached hold of KEY with that fence: D from\n"
        "now, at most 24h. Prints `ttl_ms=T`.\n"
        "\n"
        "Exit status: 0; 1 the broker refused it, for instance because the\n"
        "hold has ended; 64 bad usage; 125 trouble: no broker.\n"},
    {"show", 1, 1, "one KEY",
        "holdfast show [-o FORMAT] KEY\n"
        "\n"
        "Lists the holders and waiters of the lock KEY, at any broker, in the\n"
        "order of the queue. With tabs: kind, position, session, broker,\n"
        "name, owner, fence, ttl_ms, age_ms, note, mode, permits, detached,\n"
        "lease_ms (left of lease=; empty: the hold is renewed).\n" EXIT_USUAL},
    {"locks", 0, 0, "no words",
        "holdfast locks [--prefix P] [-o FORMAT]\n"
        "\n"
        "Lists the locks that this broker's sessions hold or wait for; with\n"
        "--prefix those whose names begin with P. With\n"
        "tabs: name, state, holders, waiters, session, client, owner, fence,\n"
        "age_ms, note, mode, permits.\n" EXIT_USUAL},
    {"sessions", 0, 0, "no words",
        "holdfast sessions [-o FORMAT]\n"
        "\n"
        "Lists the sessions of this broker. With tabs: session, name, peer,\n"
        "age_ms, idle_ms, holds, waits.\n" EXIT_USUAL},
    {"slow", 0, 0, "no words",
        "holdfast slow [--kind slow|lost|deadlock] [--limit N] [-o FORMAT]\n"
        "\n"
        "Lists what this broker recorded, newest first: operations on Redis\n"
        "that took slow.threshold or longer, with the time of each stage;\n"
        "lost holds; waits ended by deadlock detection. With tabs: kind,\n"
        "age_ms, name, session, client, owner, op, result, total_us,\n"
        "queued_us, redis_us, confirm_us, reason, fence, late_us, cycle. JSON\n"
        "has more.\n" EXIT_USUAL},
    {"status", 0, 0, "no words",
        "holdfast status [-o FORMAT]\n"
        "\n"
        "Prints each Redis node that the broker needs, and whether the broker\n"
        "can grant every lock now. With tabs: node, role, state (ready,\n"
        "settling, refusing or away), reason, since_ms, after_ms, text.\n"
        "\n"
        "Exit status: 0 it can; 1 it cannot; 64 bad usage; 125 trouble: no\n"
        "broker.\n"},
    {"top", 0, 0, "no words",
        "holdfast top [-n N] [--interval D] [-o FORMAT]\n"
        "\n"
        "Shows the most contended locks of this broker in the last minutes,\n"
        "the oldest holds and the oldest waits. On a terminal the list is\n"
        "drawn each second, as far as there is room, until q or Ctrl-C. It\n"
        "has rates if the user may send STATS. Elsewhere, or with -o, the\n"
        "list is printed once.\n"
        "\n"
        "  -n N          at most N (up to 100) of each; default, printed\n"
        "                once: 10\n"
        "  --interval D  time between two queries, at least 100ms; default:\n"
        "                1s; not where the list is printed once\n"
        "\n"
        "With tabs: kind (contended, holder or waiter), name, waits,\n"
        "waited_ms, waiters, age_ms, session, client, owner, fence, note,\n"
        "mode, permits.\n" EXIT_USUAL},
    {"audit", 0, 0, "no words",
        "holdfast audit [-o FORMAT]\n"
        "\n"
        "Lets the broker check all locks in Redis, and prints the findings:\n"
        "holds and waits that are older than the broker's configuration\n"
        "expects, holds of a dead broker, invalid records. It changes\n"
        "nothing. With tabs: kind, name, age_ms, session, broker, client,\n"
        "owner, fence, ttl_ms, waiters, note, why.\n"
        "\n"
        "Exit status: 0 no findings; 1 findings; 64 bad usage; 125 trouble:\n"
        "no broker, another audit is under way, or a Redis node did not\n"
        "answer.\n"},
    {"watch", 1, SIZE_MAX, "one KEY or several",
        "holdfast watch [--members] [-o FORMAT] KEY...\n"
        "\n"
        "Prints the state of each lock, held or free, and each change. Of\n"
        "changes in quick succession it may print only the last one. With\n"
        "tabs: event (held or free), lock, fence, holders, name, owner, note.\n"
        "\n"
        "  --members  print each holder that joins, changes or leaves\n"
        "\n"
        "With --members the list of holders comes first, between two lines\n"
        "`members`: begin=1, then members=N. After lost messages, and at\n"
        "another broker, the list comes again. With tabs: event (members,\n"
        "joined, changed or left), lock, begin, members, fence, session,\n"
        "permits, detached, name, owner, note.\n"
        "\n"
        "It continues at another broker, or when the broker is back, until a\n"
        "signal comes.\n" EXIT_USUAL},
    {"await", 1, 1, "one KEY",
        "holdfast await [--wait D] KEY\n"
        "\n"
        "Waits until nobody holds the lock KEY, without taking it. Prints\n"
        "`fence=F note=W` of the last hold, as far as the broker knows them.\n"
        "It continues at another broker, or when the broker is back.\n"
        "\n"
        "  --wait D  wait for at most D (0: no wait); default: no limit\n"
        "\n"
        "Exit status: 0 nobody holds the lock; 1 the broker refused it; 64\n"
        "bad usage; 124 not free in time; 125 trouble: no broker.\n"},
    {"break", 1, 1, "one KEY",
        "holdfast break [--fence F] KEY\n"
        "\n"
        "Takes the lock KEY from its holders, sends them LOST, and prints\n"
        "`holders=N`. With --fence only the holder with that fence loses it.\n"
        "The next waiter gets the lock when the holder's broker has released\n"
        "it, or when the lease ends.\n" EXIT_USUAL},
    {"resize", 1, 1, "one KEY",
        "holdfast resize --limit N KEY\n"
        "\n"
        "Sets the limit of a semaphore that clients hold or wait for, and\n"
        "prints it and the permits that are out: `limit=N permits=K`. A\n"
        "larger limit counts at once. A smaller one takes no permits away: no\n"
        "client gets the lock until enough permits have come "
        "back.\n" EXIT_USUAL},
    {"kill", 1, 1, "one SESSION, as `holdfast sessions` prints it",
        "holdfast kill SESSION\n"
        "\n"
        "Ends a session of this broker and releases its holds. `holdfast\n"
        "sessions` and `holdfast show` print the session's ID.\n" EXIT_USUAL},
    {"drain", 0, 0, "no words",
        "holdfast drain\n"
        "\n"
        "Stops the broker, as SIGTERM does. Its clients move to other\n"
        "brokers, with their holds.\n" EXIT_USUAL},
    {"bench", 0, 1, "one KEY-PREFIX, or none",
        "holdfast bench [-c CONNECTIONS] [-t DURATION] [--keys N] [--wait D]\n"
        "               [-o FORMAT] [KEY-PREFIX]\n"
        "\n"
        "Takes and releases locks for some time, and prints rates and\n"
        "latencies. This is a heavy load for the broker and its Redis.\n"
        "\n"
        "  -c CONNECTIONS  connections, at most 1000; default: 10. Each has\n"
        "                  one request at a time\n"
        "  -t DURATION     at most 1h; default: 5s. Ctrl-C ends it sooner\n"
        "  --keys N        number of locks, KEY-PREFIX0 and on (bench/0);\n"
        "                  default: as many as connections. With fewer,\n"
        "                  connections contend\n"
        "  --wait D        as for run; a longer wait counts as an error\n"
        "\n"
        "With tabs: op (pair, lock, unlock), count, per_second, p50_us,\n"
        "p99_us, max_us, errors, connections, keys, time_ms. The time of a\n"
        "pair is from the sending of its LOCK to the answer to its UNLOCK.\n"
        "\n"
        "Exit status: 0; 1 there were errors; 64 bad usage; 125 trouble.\n"},
    {"ping", 0, 0, "no words",
        "holdfast ping\n"
        "\n"
        "Connects, sends PING to the broker, and prints the time of the round\n"
        "trip.\n" EXIT_USUAL},
    {"raw", 0, 0, "no words",
        "holdfast raw\n"
        "\n"
        "Sends the input to the broker unchanged, and prints the replies,\n"
        "until the broker closes the connection. The broker does so after the\n"
        "end of the input and the last reply. -u and -s have no effect: the\n"
        "input has the AUTH.\n"
        "Try:  echo HELP | holdfast raw\n"
        "\n"
        "Exit status: 0; 64 bad usage; 125 trouble: no broker, or the\n"
        "connection ended without BYE.\n"},
    {"secret", 1, 1, "one USER",
        "holdfast secret [--new FILE] USER\n"
        "\n"
        "Prints the line of USER for a broker's auth.users_file, with the\n"
        "hash of the secret. Append the rights. The secret is one line of the\n"
        "input, at least 16 bytes. It should be random, since the hash is a\n"
        "fast one. With --new the command makes the secret and writes it to\n"
        "FILE, for -s. FILE must not exist yet; only its owner may read it.\n"
        "No broker is needed.\n"
        "\n"
        "Exit status: 0; 64 bad usage; 125 trouble.\n"},
};

const struct usage *
usage_find(const char *name)
{
    for (size_t i = 0; i < COUNT(usages); i++)
        if (strcmp(name, usages[i].name) == 0)
            return &usages[i];
    return NULL;
}

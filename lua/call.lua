-- The beginning of each call: the header, the time, the node's id, results.
-- See record.lua for the record itself.
-- The names of layouts, such as HEAD_FENCE, are offsets of record.def. A string
-- of Lua begins at 1.

-- Results.
local OK, WAITING, BUSY, FULL = 0, 1, 2, 3
local LATE, GONE, NEWER, CORRUPT = 4, 5, 6, 7
local CONFLICT, BROKEN_NOW, MOVED_ON = 8, 9, 10
local CHANGED, MISSING, GRACE = 11, 12, 13

-- Fences follow a clock that never goes back: the *fence clock*, in us. It is
-- the node's TIME, or what the broker tells in the header where that is ahead:
-- the latest that any Redis host's clock has said, run on since
-- (daemon/store/node/fence_clock.c). Why each grant's fence is above all before
-- it (DESIGN.md D2.4 to D2.6):
--
-- 1. A record that is up to date has the last fence: the next is above it.
-- 2. After an unknown last fence (a new record, a changed replication id) the
--    next one begins FENCE_JUMP ahead of the fence clock. Grants of a lock are
--    rarer than one a microsecond. So no fence is further ahead than that, and
--    each such beginning is above all before it.
-- 3. A record that is ahead of such a beginning steps by FENCE_STEP: more than
--    a lost suffix or a stale master can have issued.
-- 4. An older copy of a record (RESTORE, a copying tool) looks like the record.
--    So the fence of a free lock moves by half the time since its last grant,
--    and no fence is below TIME. The larger of both is above what the copy does
--    not know of. TIME is the same for all brokers, whose fence clocks are not.
--    A hand-over ahead of TIME adds one alone: there an older copy is behind by
--    what the fence was ahead.
-- 5. A stale master follows the clock, too. Its successor begins FENCE_JUMP
--    above it, and stays above it for twice that time.
-- 6. Redis forgets a free record a while after the fence clock has passed its
--    fence (record.lua), and rule 2 holds.
--
-- Nodes of a quorum must give the same fence. So their broker applies rule 4:
-- it tells all of them one number as the highest fence that it has seen
-- (daemon/store/topology/quorum.c). A number that is FENCE_FAR beyond TIME is
-- not believed.
local FENCE_JUMP = 10000000
local FENCE_STEP = 1000000
local FENCE_FAR = 86400000000
local FENCE_MAX = 9007199254740992

-- A clock that is set forward by more than a twelfth of a record's term may
-- have had Redis forget holds. That is as a loss of data: a broker that has not
-- noticed it before this call is not settled in this call. In us for a ms.
local LEAP = 80
local ULONG_MAX = 4294967295

local pack, unpack_at = struct.pack, struct.unpack
local sub, byte = string.sub, string.byte
local call, pcall_redis = redis.call, redis.pcall
-- PUBLISH goes through pcall_redis: its message is a hint. If Redis denies it,
-- an error would leave the record half written.

local header = ARGV[1]
local broker = sub(header, HEADER_BROKER + 1, HEADER_FENCE_CLOCK)

-- Which master of a quorum this is, from 1 on; 0: it is none of any. There the
-- fences of grants are multiples of 16, so that nodes that have heard the same
-- give the same. The numbers between two of them tell which node gave them: so
-- what a ticket has of these is nobody else's anywhere.
local number = byte(header, HEADER_NUMBER + 1)

local function next_fence(fence)
    return number == 0 and fence + 1 or fence - math.fmod(fence, 16) + 16
end

local function own_fence(fence)
    local own = fence - math.fmod(fence, 16) + number
    return own > fence and own or own + 16
end

-- The node's time in us and ms, the fence clock, and the node's replication id:
-- asked for once, by what needs it.
local now_us, now, clock_us, id

-- Whether the broker knows the id, and has known it for so long that each
-- earlier holder has said so, or is none any more. The id that it last saw came
-- from this very process. An id that has changed since without a second one is
-- no new history (a backup was taken, a replica has come).
local known, settled
local NO_ID = '0000000000000000000000000000000000000000'

local function look(reads)
    if id then
        return
    end
    local clock = call('TIME')
    now_us = clock[1] * 1000000 + clock[2]
    now = math.floor(now_us / 1000)
    clock_us = now_us
    local told, _, expected = unpack_at('<ddd', header, HEADER_FENCE_CLOCK + 1)
    if told > now_us and told < now_us + FENCE_FAR then
        clock_us = told
    end
    local info = call('INFO', 'replication')
    if not reads and string.find(info, 'role:slave', 1, true) then
        error({err = 'READONLY It is a replica, and takes writes all the same'})
    end
    local _, at = string.find(info, 'master_replid:', 1, true)
    id = sub(info, at + 1, at + 40)
    known = sub(header, HEADER_ID + 1, HEADER_SETTLES_IN) == id or
        string.find(info, 'master_replid2:' .. NO_ID, at, true) ~= nil
    settled = known and
        sub(header, HEADER_SETTLES_IN + 1, HEADER_STEADY_IN) == '\0\0\0\0'
    if settled and now_us > expected + 1000000 then
        local within, idle_after =
            unpack_at('<I4I4', header, HEADER_WITHIN + 1)
        settled = within == ULONG_MAX or
            now_us - expected <= LEAP * idle_after
    end
end

-- PLAIN: version, flags, width and limit of a record without words. FREE and
-- SOLE: stored, first, live and granted of a free lock, and of a lock with just
-- a holder in the first place.
local PLAIN = '\1\0\104\0\0\0\0\0'
local FREE = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
local SOLE = '\1\0\0\0\0\0\0\0\1\0\0\0\1\0\0\0'

-- The first bytes of a result that is OK and has no grants.
local RESULT_OK = '\0\0\0\0\0\0\0\0\0\0'

-- The results of the operations, in their order; the first place is the
-- reply's.
local out = {''}

-- The reply: the time and the id, or zeros where nobody asked for them, then
-- the results.
local function reply()
    if id then
        out[1] = pack(REPLY_FORMAT, now_us, id)
    else
        out[1] = FREE .. FREE .. FREE
    end
    return table.concat(out)
end

-- Flags: the operation granted a ticket of another broker; it left tickets that
-- it could have granted; a ticket waits for its broker to be settled. BEYOND:
-- more permits are out than the semaphore has. WAITED_FOR: others wait while
-- this intention holds the lock; of BUSY, intentions alone are in the way.
local HANDED, MORE, UNSETTLED, BEYOND, WAITED_FOR = 1, 2, 4, 8, 16
local handed = 0

-- `about`: bytes that say who is in the way.
local function result(status, place, arrival, fence, ttl, again, ahead, grants,
    about)
    out[#out + 1] = pack(RESULT_FORMAT, status, handed, grants and #grants or 0,
        about and #about or 0, place or 0, arrival or 0, fence or 0,
        ttl and ttl > 0 and ttl or 0, again or 0, ahead or 0)
    handed = 0
    if grants then
        out[#out + 1] = table.concat(grants)
    end
    out[#out + 1] = about
end

-- A time to come in whole ms, as far as it can be believed.
local function believed(ms)
    ms = math.floor(ms)
    return ms > 0 and ms <= FENCE_FAR / 1000 and ms or 0
end

-- In how many ms the fence clock has passed a fence.
local function fence_ahead(fence)
    return believed((fence - clock_us) / 1000)
end

-- When the last fence of a record was given, in us, or nil: where that was not
-- to its first ticket. `raw` has the record's first 240 bytes.
local function given_at(raw)
    if sub(raw, HEAD_FENCE + 1, HEAD_ARRIVAL) ==
        sub(raw, HEAD + TICKET_FENCE + 1, HEAD + TICKET_ENDS) then
        return (unpack_at('<d', raw, HEAD + TICKET_SINCE + 1))
    end
end

-- The last fence as the next grant must see it: by the rules above, and never
-- below what the broker has seen. `given` is when it was given, or nil. nil:
-- the broker's memory is beyond belief.
local function raise_fence(fence, old_id, seen, given)
    if old_id ~= id then
        local start = clock_us + FENCE_JUMP
        fence = fence < start and start or fence + FENCE_STEP
    elseif number == 0 then
        if given and given < now_us and fence < clock_us + 2 * FENCE_JUMP then
            fence = fence +
                math.min(math.floor((now_us - given) / 2), FENCE_JUMP)
        end
        if fence < now_us then
            fence = now_us
        end
    end
    if seen > fence then
        if seen > now_us + FENCE_FAR then
            return nil
        end
        fence = seen
    end
    return fence
end

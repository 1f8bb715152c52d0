-- What every call begins with: the header, the time, the node's id, results.
-- See record.lua for the record itself.

local HEAD = 136
local TICKET = 104
local RESULT_FORMAT = '<BBI2I2I4ddI4I4I4'
local HEADER_FORMAT = '<BBI2c8dddI4c40I4I4I4'

-- Results.
local OK, WAITING, BUSY, FULL = 0, 1, 2, 3
local LATE, GONE, NEWER, CORRUPT = 4, 5, 6, 7
local CONFLICT, BROKEN_NOW, MOVED_ON = 8, 9, 10
local CHANGED, MISSING, GRACE = 11, 12, 13

-- Where the last fence may be unknown (a new record, a changed replication id)
-- the next ones begin so far ahead of the clock, in us. As grants are rarer
-- than one a microsecond, no fence is ever further ahead than that, however
-- often the id changes, so that each such beginning is above all before it.
-- Where the record is ahead of that already, since this clock is behind the
-- last one's, it steps by more than any lost suffix or stale master can have
-- issued. One that is FENCE_FAR beyond the clock is not believed.
local FENCE_JUMP = 10000000
local FENCE_STEP = 1000000
local FENCE_FAR = 86400000000
local FENCE_MAX = 9007199254740992

local pack, unpack_at = struct.pack, struct.unpack
local sub, byte = string.sub, string.byte
local call, pcall_redis = redis.call, redis.pcall

local header = ARGV[1]
local broker = sub(header, 5, 12)

-- Which master of a quorum this is, from 1 on; 0: it is none of any. There the
-- fences of grants are multiples of 16, so that nodes that have heard the same
-- give the same. The numbers between two of them tell which node gave them: so
-- what a ticket has of these is nobody else's anywhere.
local number = byte(header, 2)

local function next_fence(fence)
    return number == 0 and fence + 1 or fence - math.fmod(fence, 16) + 16
end

local function own_fence(fence)
    local own = fence - math.fmod(fence, 16) + number
    return own > fence and own or own + 16
end

-- The node's time in us and ms, and its replication id: asked for once, by what
-- needs it.
local now_us, now, id

-- Whether the broker knows of the id, and whether it has known it for so long
-- that whoever held a lock before has said so, or is none any more. What it
-- last saw came from this very process: an id that has changed since without a
-- second one is no new history (a backup was taken, a replica has come).
local known, settled
local NO_ID = '0000000000000000000000000000000000000000'

local function look()
    if id then
        return
    end
    local clock = call('TIME')
    now_us = clock[1] * 1000000 + clock[2]
    now = math.floor(now_us / 1000)
    local info = call('INFO', 'replication')
    local _, at = string.find(info, 'master_replid:', 1, true)
    id = sub(info, at + 1, at + 40)
    known = sub(header, 41, 80) == id or
        string.find(info, 'master_replid2:' .. NO_ID, at, true) ~= nil
    settled = known and sub(header, 81, 84) == '\0\0\0\0'
end

-- The beginning of a record whose tickets have no words, and parts of it that
-- tell a free lock, and one with nothing but a holder in the first place:
-- version, flags, width, limit; stored, first, live, granted.
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
        out[1] = pack('<dc40', now_us, id)
    else
        out[1] = FREE .. FREE .. FREE
    end
    return table.concat(out)
end

-- Whether the operation at hand granted a ticket of another broker, whether it
-- left some that it could have granted, and whether a ticket waits because its
-- broker is not settled with the node.
local HANDED, MORE, UNSETTLED = 1, 2, 4
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

-- The last fence as the next grant must see it: raised where the id has changed
-- since the last grant, and never below what the broker has seen. nil: the
-- broker's memory is beyond belief.
local function raise_fence(fence, old_id, seen)
    if old_id ~= id then
        local start = now_us + FENCE_JUMP
        fence = fence < start and start or fence + FENCE_STEP
    end
    if seen > fence then
        if seen > now_us + FENCE_FAR then
            return nil
        end
        fence = seen
    end
    return fence
end

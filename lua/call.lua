-- What every call begins with: the header, the time, the node's id, results.
-- See record.lua for the record itself.

local HEAD = 120
local TICKET = 96
local RESULT_FORMAT = '<BBI2I4ddI4I4I4'
local HEADER_FORMAT = '<BBI2c8dddI4c40'

-- Results.
local OK, WAITING, BUSY, FULL, LATE, GONE, NEWER, CORRUPT = 0, 1, 2, 3, 4, 5, 6, 7

-- A fence after a change of the replication id jumps by so much, in us: more
-- than any lost suffix or stale master can have issued. One so far beyond the
-- clock is not believed.
local FENCE_JUMP = 10000000
local FENCE_FAR = 86400000000

local pack, unpack_at, sub = struct.pack, struct.unpack, string.sub
local call, pcall_redis = redis.call, redis.pcall

local _, _, lapse, broker, realtime_us, forget_after, expected, waiters_max,
    settled_id = unpack_at(HEADER_FORMAT, ARGV[1])

local clock = call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000)
local id = string.match(call('INFO', 'replication'), 'master_replid:(%x+)')

-- The beginning of a record whose tickets have no words, and parts of it that
-- tell a free lock, and one with nothing but a holder in the first place.
local PLAIN = pack('<BBI2I4', 1, 0, TICKET, 0)
local FREE = string.rep('\0', 16)
local SOLE = pack('<I4I4I4I4', 1, 0, 1, 1)

-- The reply: the time, the id, then a result for each operation.
local out = {pack('<dc40', now_us, id)}

-- Whether the operation at hand granted a ticket of another broker.
local handed = 0

local function result(status, place, arrival, fence, ttl, again, ahead, grants)
    out[#out + 1] = pack(RESULT_FORMAT, status, handed, grants and #grants or 0,
        place or 0, arrival or 0, fence or 0, ttl or 0, again or 0, ahead or 0)
    handed = 0
    if grants then
        out[#out + 1] = table.concat(grants)
    end
end

-- The last fence as the next grant must see it: raised where the id has changed
-- since the last grant, and never below what the broker has seen. nil: the
-- broker's memory is beyond belief.
local function raise_fence(fence, old_id, seen)
    if old_id ~= id then
        fence = math.max(fence, now_us) + FENCE_JUMP
    end
    if seen > fence then
        if seen > now_us + FENCE_FAR then
            return nil
        end
        fence = seen
    end
    return fence
end

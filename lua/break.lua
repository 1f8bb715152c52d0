#!lua flags=allow-oom
-- break: takes a lock from its holders. Their renewals are refused from now on;
-- their brokers are told, tell them, and release their holds. A broker that
-- does not loses them when the lease ends.
--
-- KEYS: the lock. ARGV: the header, then BREAK (see record.def).
-- The result has the count of holders that were broken (ahead).
--@include call.lua
look()
--@include record.lua

local raw, wrong = record_check(pcall_redis('GETRANGE', KEYS[1], '0',
    TEXT(HEAD + TICKET - 1)))
local r = raw and raw ~= '' and head_load(KEYS[1], raw)
if not r then
    result(raw == '' and GONE or wrong or CORRUPT)
    return reply()
end
local fence = unpack_at(BREAK_FORMAT, ARGV[2])
local left, count = r.granted, 0
for place, flags, from, at in queue_walk(r, r.first) do
    if left == 0 then
        break
    end
    if bit.band(flags, GRANTED) ~= 0 then
        left = left - 1
        local t = ticket_unpack(place, from, at)
        local over = t.ends <= now and steady
        if not over and (fence == 0 or t.fence == fence) then
            t.flags = bit.bor(t.flags, BROKEN)
            ticket_store(r, t)
            pcall_redis('PUBLISH', channel .. t.broker,
                pack('<c1c8d', 'B', sub(t.identity, IDENTITY_REQUEST + 1),
                    t.fence))
            count = count + 1
        end
    end
end
result(count > 0 and OK or GONE, 0, 0, 0, 0, 0, count)
return reply()

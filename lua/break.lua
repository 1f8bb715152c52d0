#!lua flags=allow-oom
-- break: takes a lock from its holders. Their renewals are refused from now on;
-- their brokers are told, tell them, and release their holds. A broker that
-- does not loses them when the lease ends. Detached holds have no broker: they
-- end here.
--
-- KEYS: the lock. ARGV: the header, then BREAK (see record.def).
-- The result has the count of holders that were broken (ahead), and if detached
-- holds were among them the largest fence that they may have had.
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
local left, count, ended = r.granted, 0, 0
for place, flags, from, at in queue_walk(r, r.first) do
    if left == 0 then
        break
    end
    if bit.band(flags, GRANTED) ~= 0 then
        left = left - 1
        local t = ticket_unpack(place, from, at)
        local over = t.ends <= now and steady
        local meant = not over and (fence == 0 or t.fence == fence)
        count = count + (meant and 1 or 0)
        if meant and t.detached then
            ticket_drop(r, t)
            ended = fence > 0 and fence or r.fence
        elseif meant then
            t.flags = bit.bor(t.flags, BROKEN)
            ticket_store(r, t)
            pcall_redis('PUBLISH', channel .. t.broker,
                pack('<c1c8d', 'B', sub(t.identity, IDENTITY_REQUEST + 1),
                    t.fence))
        end
    end
end
local grants
if ended > 0 then
    adopt(r)
    expire(r)
    grants = serve(r, 0)
    record_store(r)
end
result(count > 0 and OK or GONE, 0, 0, ended, 0, 0, count, grants)
return reply()

#!lua flags=no-writes
-- inspect: the record of one lock for people to see.
--
-- KEYS: the lock. ARGV: the header, then INSPECT (see record.def).
-- After the time and id: INSPECTED, the head, and each living ticket with its
-- words, at the record's width. Again is 1 if the ends of leases are another
-- clock's, or this one may have stepped. The ttl says in how many ms the broker
-- is settled with the node: until then the data may lack holders. Tickets whose
-- arrival is not later than that of INSPECT are left out; the place is the
-- number of waiters among them. Ahead is 1 if there are tickets behind those.
-- An upgrade that is granted excludes all others, so it comes first. Its
-- arrival in INSPECT says that it alone has been shown.
--
--@include call.lua
look(true)
--@include record.lua

-- The upgrade of the first holder, if it is granted, or nil.
local function upgraded(r)
    if bit.band(r.flags, UPGRADES) == 0 or r.granted ~= 2 then
        return nil
    end
    for place, flags, from, at in queue_walk(r, r.first) do
        if bit.band(flags, GRANTED) ~= 0 then
            local t = ticket_unpack(place, from, at)
            return ticket_with(r, counterpart(t.identity),
                TICKET_IDENTITY + IDENTITY_SESSION, function(other)
                    return bit.band(other.flags, GRANTED) ~= 0 and
                        other.mode == UPGRADE
                end)
        end
    end
end

local unsettled = settled and 0 or max(settles_in, 1)
local raw, wrong = record_check(pcall_redis('GETRANGE', KEYS[1], '0',
    TEXT(HEAD + TICKET - 1)))
local r = raw and raw ~= '' and head_load(KEYS[1], raw)
if not r then
    result(raw == '' and GONE or wrong or CORRUPT, 0, 0, 0, unsettled)
    return reply()
end
local left, after = unpack_at(INSPECT_FORMAT, ARGV[2])
local tickets, passed, more = {}, 0, 0
r.raw = nil -- has no words
-- An upgrade stands before all waiters: it is shown so where all are shown.
local sorts = bit.band(r.flags, UPGRADES) ~= 0 and after == 0 and r.live <= left
local top = upgraded(r)
if top and after == 0 then
    local at = ticket_at(r, top.place)
    tickets[1] = call('GETRANGE', r.key, at, at + r.width - 1)
    left = left - 1
elseif top and after == top.arrival then
    after = 0
end
local waits = {}
for place, flags, from, at in queue_walk(r, r.first) do
    local granted = bit.band(flags, GRANTED) ~= 0
    local shows = flags ~= 0 and not (top and place == top.place)
    if shows and unpack_at('<d', from, at + TICKET_ARRIVAL) <= after then
        passed = passed + (granted and 0 or 1)
    elseif shows and left == 0 then
        more = 1
        break
    elseif shows then
        local later = sorts and not granted and
            bit.band(byte(from, at + TICKET_MODE), UPGRADE) == 0
        local list = later and waits or tickets
        list[#list + 1] = sub(from, at, at + r.width - 1)
        left = left - 1
    end
end
for i = 1, #waits do
    tickets[#tickets + 1] = waits[i]
end
result(OK, passed, r.arrival, r.fence, unsettled,
    (r.id ~= id or not steady) and 1 or 0, more)
out[#out + 1] = pack(INSPECTED_FORMAT, #tickets) .. sub(raw, 1, HEAD)
out[#out + 1] = table.concat(tickets)
return reply()

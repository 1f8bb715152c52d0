#!lua flags=allow-oom
-- renew: says that a ticket's broker is there. A holder's lease is extended, a
-- grant that another broker made is claimed, a waiter keeps its place; and as
-- expiry runs no script of its own, it is looked for here.
--
-- KEYS: the locks. ARGV: the header, then for each lock
--   identity c36, flags B, place I4, arrival d,
--   fence d (0: a waiter's), lease I4 (ms), hold d (ms left to it, 0: no end),
--   latest d (ms of TIME), seen d (a fence)
-- It never brings back what is over: then the answer is GONE. Flags: 1, no
-- ticket, only look for what is due; 2, the end that a client asked for, be it
-- nearer. Without 2 no lease is shortened: the renewal may be an old one that
-- was redirected and overtaken by a client's own.
--@include call.lua

-- The way for every record.
local function general()
    look()
--@include record.lua

local LOOK, SETS_END = 1, 2

-- Extends a hold in place; the head is touched only where it must be.
local function hold_extend(r, t, flags, lease, hold, seen)
    local term = lease
    if hold > 0 and hold < lease then
        term = hold
    end
    if flags ~= SETS_END then
        term = max(term, min(t.ends - now, lease))
    end
    t.ends = now + term
    call('SETRANGE', r.key, ticket_at(r, t.place) + 24, pack('<d', t.ends))
    r.raw = nil
    if r.longest < lease or r.id ~= id or t.ends < r.low or
        forgets_soon(r) then
        local fence = raise_fence(r.fence, r.id, seen)
        if fence then
            r.fence, r.id = fence, id
        end
        r.longest = max(r.longest, lease)
        r.low = min(r.low, t.ends)
        record_store(r)
    end
    result(OK, t.place, t.arrival, t.fence, term)
end

-- Passes on what has expired; the answer is `status`, or that of `own`.
local function pass_on(r, seen, status, own)
    expire(r)
    local grants = serve(r, seen, own)
    if own then
        result_of(r, own, grants)
    else
        -- Where the suspended are all that wait, their broker must ask.
        local waits = r.live > r.granted and
            (closed(r) or now < r.grace or now < r.delay)
        result(status, 0, 0, 0, 0, waits and ask_again(r) or 0, 0, grants)
    end
    record_store(r)
end

return function(key, arg, read)
    local flags, place, arrival, fence, lease, hold, latest, seen =
        unpack_at('<BI4ddI4ddd', arg, 37)
    if now > latest then
        return result(LATE)
    end
    local raw, wrong = record_check(read)
    if not raw then
        return result(wrong)
    end
    local r = raw ~= '' and head_load(key, raw)
    if not r then
        return result(raw == '' and GONE or CORRUPT)
    end
    if flags == LOOK then
        return pass_on(r, seen, OK)
    end
    local t = ticket_of(r, sub(arg, 1, 36), place, arrival)
    if not t or (fence > 0 and t.fence ~= fence) then
        return result(GONE)
    end
    if bit.band(t.flags, GRANTED) == 0 then
        expire(r) -- first, for it may suspend this broker's tickets
        t.flags, t.ends = WAITS, now + lease
        ticket_store(r, t)
        return pass_on(r, seen, OK, t)
    end
    if t.ends <= now then
        return pass_on(r, seen, GONE)
    end
    if t.flags == HELD then
        return hold_extend(r, t, flags, lease, hold, seen)
    end
    t.flags, t.ends = HELD, now + ticket_term(t)
    ticket_store(r, t)
    if t.ends < r.low then
        r.low = t.ends
        record_store(r)
    end
    result(OK, t.place, t.arrival, t.fence, t.ends - now)
end
end

local FRONT = string.rep('\0', 4)
local forget_after = unpack_at('<d', header, 21)
local slow

-- A short cut: a holder in the first place, whose lease is the usual one, of a
-- record whose head needs no change. False where it is anything else. (A dead
-- ticket in front of the first keeps its flags.)
local function renew_plain(key, arg, raw)
    look()
    if raw:byte(HEAD + 1) ~= 7 or sub(raw, 165, 200) ~= sub(arg, 1, 36) or
        sub(raw, 129, 144) ~= sub(arg, 42, 57) or
        sub(raw, 41, 44) ~= sub(arg, 58, 61) or sub(raw, 81, HEAD) ~= id or
        raw:byte(1) ~= 1 or sub(raw, 29, 32) ~= FRONT or
        arg:byte(37) ~= 0 then
        return false
    end
    local lease, hold, latest, seen = unpack_at('<I4ddd', arg, 58)
    local forget = unpack_at('<d', raw, 73)
    local ends = unpack_at('<d', raw, 145)
    if now > latest or hold > 0 or ends <= now or ends > now + lease or
        forget - now < forget_after / 2 then
        return false
    end
    call('SETRANGE', key, '144', pack('<d', now + lease))
    out[#out + 1] = RESULT_OK .. sub(raw, 129, 144) ..
        pack('<I4I4I4', lease, 0, 0)
    return true
end

for i = 1, #KEYS do
    local raw = pcall_redis('GETRANGE', KEYS[i], '0', '215')
    if type(raw) ~= 'string' or not renew_plain(KEYS[i], ARGV[i + 1], raw) then
        slow = slow or general()
        slow(KEYS[i], ARGV[i + 1], raw)
    end
end
return reply()

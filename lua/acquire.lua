#!lua
-- acquire: takes locks, or stands in their queues.
--
-- KEYS: the locks. ARGV: the header, then for each lock
--   identity c36, flags B (1: the ticket may be there already; 2: do not wait),
--   mode B, words I2, permits I4, limit I4, lease I4 (ms),
--   hold d (ms, 0: none), latest d (ms of TIME), seen d (a fence), words
-- Asking twice for one ticket is asking once: where it may be there already it
-- is looked for, and its lease too. After `latest` nothing is done.
--@include call.lua

-- The way for every record.
local function general()
    look()
--@include record.lua

local ACQUIRE_FORMAT = '<BBI2I4I4I4ddd'
local ACQUIRE_WORDS = 36 + 40 + 1
local RETRY, NO_QUEUE = 1, 2

-- Makes room for words in every ticket of the record.
local function widen(r, words)
    local width = TICKET + 64 * math.ceil(words / 64)
    if width <= r.width then
        return
    end
    if r.stored > 0 then
        local raw = call('GETRANGE', r.key, HEAD, HEAD + r.stored * r.width - 1)
        local padding = string.rep('\0', width - r.width)
        local tickets = {}
        for at = 1, #raw, r.width do
            tickets[#tickets + 1] = sub(raw, at, at + r.width - 1) .. padding
        end
        call('SETRANGE', r.key, HEAD, table.concat(tickets))
    end
    r.width = width
end

-- Nobody holds or waits: a grant, in one write.
local function acquire_free(r, arg, permits, mode, words, lease, hold, seen)
    local fence = raise_fence(r.fence, r.id, seen)
    if not fence then
        return result(CORRUPT)
    end
    fence = fence + 1
    local term = lease
    if hold > 0 and hold < lease then
        term = hold
    end
    r.fence, r.id = fence, id
    r.stored, r.live, r.granted, r.first = 1, 1, 1, 0
    r.low, r.longest = now + term, lease
    local arrival = r.arrival
    r.arrival = arrival + 1
    local new = r.forget == 0
    local term_of_key = forgets_soon(r) and forget_later(r)
    if words > 0 then
        r.width = TICKET + 64 * math.ceil(words / 64)
    end
    local data = head_pack(r) .. id ..
        pack('<BBI2I4ddddI4', HELD, mode, words, permits, arrival, fence,
            now + term, hold, lease) ..
        sub(arg, 1, 36) .. broker .. pack('<d', now)
    if words > 0 then
        data = data .. sub(arg, ACQUIRE_WORDS) ..
            string.rep('\0', r.width - TICKET - words)
    end
    if new then
        call('SET', r.key, data, 'PX', term_of_key)
    else
        call('SETRANGE', r.key, 0, data)
        if term_of_key then
            call('PEXPIRE', r.key, term_of_key)
        end
    end
    result(OK, 0, arrival, fence, term, 0, 0)
end

-- A new ticket at the end of the queue.
local function ticket_append(r, arg, mode, words, permits, lease, hold)
    widen(r, words)
    local t = {place = r.stored, flags = WAITS, mode = mode, words = words,
        permits = permits, arrival = r.arrival, fence = 0, ends = now + lease,
        hold = hold, lease = lease, identity = sub(arg, 1, 36),
        broker = broker, since = now}
    call('SETRANGE', r.key, ticket_at(r, t.place), ticket_pack(t) ..
        sub(arg, ACQUIRE_WORDS) .. string.rep('\0', r.width - TICKET - words))
    r.raw = nil
    r.stored, r.live, r.arrival = r.stored + 1, r.live + 1, r.arrival + 1
    return t
end

-- The ticket was there already: the broker has asked again.
local function ticket_again(r, t, lease)
    if bit.band(t.flags, GRANTED) ~= 0 then
        t.flags, t.ends = HELD, now + ticket_term(t)
        r.low = min(r.low, t.ends)
    else
        t.flags, t.ends = WAITS, now + lease
    end
    ticket_store(r, t)
end

return function(key, arg, read)
    local flags, mode, words, permits, limit, lease, hold, latest, seen =
        unpack_at(ACQUIRE_FORMAT, arg, 37)
    if now > latest then
        return result(LATE)
    end
    local raw, wrong = record_check(read)
    if not raw then
        return result(wrong)
    end
    local r = raw == '' and head_new(key) or head_load(key, raw)
    if not r then
        return result(CORRUPT)
    end
    if r.live == 0 and now >= r.grace and now >= r.delay then
        return acquire_free(r, arg, permits, mode, words, lease, hold, seen)
    end
    expire(r)
    local t, grants
    if bit.band(flags, RETRY) ~= 0 then
        t = ticket_of(r, sub(arg, 1, 36), 0, 0)
    end
    if t then
        ticket_again(r, t, lease)
        grants = serve(r, seen, t)
    else
        if bit.band(flags, NO_QUEUE) ~= 0 then
            grants = serve(r, seen)
            -- Whoever waits now is suspended, and in nobody's way.
            if closed(r) or now < r.grace or now < r.delay then
                result(BUSY, 0, 0, 0, 0, ask_again(r), 0, grants)
                return record_store(r)
            end
        elseif full(r) then
            grants = serve(r, seen)
            if full(r) then
                result(FULL, 0, 0, 0, 0, 0, 0, grants)
                return record_store(r)
            end
        end
        t = ticket_append(r, arg, mode, words, permits, lease, hold)
        grants = serve(r, seen, t, grants)
    end
    result_of(r, t, grants)
    record_store(r)
end
end

-- What an argument without words says between flags and lease: mode, words,
-- permits, limit.
local PLAIN_ASK = '\0\0\0\1\0\0\0\0\0\0\0'
-- The beginning of a holder's ticket: flags, mode, words, permits.
local HELD_PLAIN = '\7\0\0\0\1\0\0\0'
local forget_after = unpack_at('<d', header, 21)
local cached, held_state, ends_raw, ticket_end, result_end, holder
local slow

-- The parts that are the same for one lease.
local function prepare(lease)
    cached = lease
    held_state = SOLE .. pack('<I4I4', lease, 0)
    ends_raw = pack('<d', now + lease)
    ticket_end = ends_raw .. pack('<dI4', 0, lease)
    result_end = pack('<I4I4I4', lease, 0, 0)
    holder = broker .. pack('<d', now)
end

-- A short cut: a free record of a lock that was used before, no words, renewed
-- by its broker. False where the record is not of that kind.
local function acquire_plain(key, arg, raw)
    if sub(raw, 25, 40) ~= FREE or sub(raw, 1, 8) ~= PLAIN or #raw < 216 or
        sub(arg, 38, 48) ~= PLAIN_ASK then
        return false
    end
    look()
    local lease, hold, latest, seen = unpack_at('<I4ddd', arg, 49)
    local fence, arrival = unpack_at('<dd', raw, 9)
    local grace, delay, forget = unpack_at('<ddd', raw, 57)
    if now > latest or now < grace or now < delay or hold > 0 or
        forget - now < forget_after / 2 then
        return false
    end
    fence = raise_fence(fence, sub(raw, 81, HEAD), seen)
    if not (fence and fence < forget * 1000) then
        return false
    end
    if lease ~= cached then
        prepare(lease)
    end
    local numbers = pack('<dd', arrival, fence + 1)
    call('SETRANGE', key, '0', PLAIN .. pack('<dd', fence + 1, arrival + 1) ..
        held_state .. ends_raw .. sub(raw, 57, 80) .. id .. HELD_PLAIN ..
        numbers .. ticket_end .. sub(arg, 1, 36) .. holder)
    out[#out + 1] = RESULT_OK .. numbers .. result_end
    return true
end

for i = 1, #KEYS do
    local raw = pcall_redis('GETRANGE', KEYS[i], '0', '215')
    if type(raw) ~= 'string'
        or not acquire_plain(KEYS[i], ARGV[i + 1], raw) then
        slow = slow or general()
        slow(KEYS[i], ARGV[i + 1], raw)
    end
end
return reply()

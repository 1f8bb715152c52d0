#!lua
-- acquire: takes locks, or stands in their queues.
--
-- KEYS: the locks. ARGV: the header, then for each lock IDENTITY, ACQUIRE,
-- STOOD_AT where it stood there, words (see record.def). Flags:
--   1  the ticket may be there already
--   2  do not wait
--   4  a ticket of an earlier generation may be there
--   8  say who holds it
--  16  it stood there
--  32  with 1: the lease of the first question may be over
--  64  it waits outside of the record, so BUSY is told to other brokers
--
-- Asking twice for one ticket is asking once: a ticket that may be there is
-- looked for, and its lease too. A hold that the first question got is taken up
-- within its lease alone: older data may not show who followed it. After
-- `latest` nothing is done. CONFLICT says the limit of the semaphore. A ticket
-- that stood there, as its broker still believes, stands there again where the
-- data may be older than it; else it is GONE. See DESIGN.md D3.7 and D9.4.
--@include call.lua

-- The way for every record.
local function general()
    look()
--@include record.lua

local RETRY, NO_QUEUE, MOVES, TELL = 1, 2, 4, 8
local STOOD, OVERDUE, TELLS_WAIT = 16, 32, 64

-- After a hold that comes back nobody is granted the lock for so long, in ms,
-- so that those who waited for it come back before one of them is.
local BACK = 1500

-- Nor for so long after a waiter that comes back to a lock that nobody has, for
-- those that stood before it come in any order.
local GATHER = 100

-- The wanted ticket, which stands nowhere yet.
local function ticket_asked(arg)
    local flags, mode, words, permits, limit, lease, delay, hold, latest, seen =
        unpack_at(ACQUIRE_FORMAT, arg, IDENTITY + 1)
    local part = bit.band(mode, PART)
    return {flags = WAITS, mode = mode - part, part = part, words = words,
        permits = permits,
        fence = 0, ends = now + lease, hold = hold, lease = lease,
        identity = sub(arg, 1, IDENTITY), broker = broker, since = now_us,
        delay = delay}, flags, limit, latest, seen
end

-- Nobody holds or waits: a grant, in one write.
local function acquire_free(r, arg, t, limit, seen, given)
    local fence = raise_fence(r.fence, r.id, seen, given)
    if not fence then
        return result(CORRUPT)
    end
    fence = next_fence(fence)
    t.fence, t.arrival, t.place = fence, r.arrival, 0
    ticket_hold(t)
    r.fence, r.id, r.arrival = fence, id, r.arrival + 1
    r.limit = limit
    stands(r, t)
    joins(r, t)
    r.stored, r.live, r.granted, r.first, r.front = 1, 1, 1, 0, 1
    r.used, r.low, r.longest = t.permits, t.ends, t.lease
    if r.watch > 0 then
        r.news = true
        watchers_tell(r)
        member_tell(r, JOINS, t, 1, sub(arg, IDENTITY + ACQUIRE + 1))
    end
    local new = r.forget == 0
    local term_of_key = forgets_soon(r) and forget_in(r, idle_after)
    if t.words > 0 then
        r.width = TICKET + 64 * math.ceil(t.words / 64)
    end
    local data = head_pack(r) .. ticket_pack(t)
    if t.words > 0 then
        data = data .. sub(arg, IDENTITY + ACQUIRE + 1) ..
            string.rep('\0', r.width - TICKET - t.words)
    end
    if new then
        call('SET', r.key, data, 'PX', term_of_key)
    else
        call('SETRANGE', r.key, 0, data)
        if term_of_key then
            call('PEXPIRE', r.key, term_of_key)
        end
    end
    result(OK, 0, t.arrival, t.fence, t.ends - now, 0, 0)
end

-- Puts a ticket there, and those behind it one further; or over a dead one.
local function ticket_put(r, words, t, over)
    local data = ticket_pack(t) .. words ..
        string.rep('\0', r.width - TICKET - t.words)
    if t.place < r.stored then
        r.front = min(r.front, t.place)
        if not over then
            data = data .. call('GETRANGE', r.key, ticket_at(r, t.place), '-1')
        end
    end
    call('SETRANGE', r.key, ticket_at(r, t.place), data)
    r.raw = nil
    r.stored, r.live = r.stored + (over and 0 or 1), r.live + 1
end

-- Puts a ticket at the end of the queue, behind those that may come back with
-- the numbers that they had.
local function ticket_append(r, words, t)
    widen(r, t.words)
    stands(r, t)
    if bereft(r, 0) then
        r.arrival = max(r.arrival, now_us + FENCE_JUMP)
    end
    t.place, t.arrival = r.stored, r.arrival
    if r.live == r.granted then
        r.sweep = ULONG_MAX
    end
    waits_until(r, t, t.ends)
    ticket_put(r, words, t)
    r.arrival = r.arrival + 1
end

-- The ticket was there already: the broker has asked again.
local function ticket_again(r, t, lease)
    if t.flags == LIVING + GRANTED and not r.pending then
        ticket_hold(t)
        r.low = min(r.low, t.ends)
    elseif t.flags == HELD and not t.detached then
        t.ends, r.longest = ends_anew(r, t, lease), max(r.longest, lease)
        if t.hold > 0 then
            t.ends = min(t.ends, t.hold)
        end
        r.low = min(r.low, t.ends)
        shows(r, t)
        if r.pending and sole(r, t) then
            stamp(r, t.fence)
        end
    elseif bit.band(t.flags, GRANTED) == 0 then
        t.flags = WAITS
        waits_until(r, t, now + lease)
    end
    ticket_store(r, t)
end

-- A hold that a LOCK takes for its own is a grant, with a fence above all: the
-- data may be older than later grants. False: there is no such fence.
local function fence_anew(r, t, seen)
    if bit.band(t.flags, GRANTED) == 0 then
        return true
    end
    local fence = raise_fence(r.fence, r.id, seen)
    if not fence then
        return false
    end
    member_tell(r, LEAVES, t, r.granted - 1)
    r.fence, r.id, r.news = next_fence(fence), id, true
    t.fence, t.since = r.fence, now_us
    return true
end

-- The ticket that stands there already, or nil; and a status where it is not to
-- be had by this broker.
local function ticket_standing(r, asked, flags, limit, seen, arg)
    local t
    if bit.band(flags, RETRY) ~= 0 then
        t = ticket_of(r, asked.identity, 0, 0)
        local ended = bit.band(flags, OVERDUE) ~= 0 and CLAIMED or 0
        if t and bit.band(t.flags, BROKEN + ended) ~= 0 and not t.detached then
            ticket_drop(r, t)
            return nil
        end
    end
    if not t and bit.band(flags, MOVES) ~= 0 then
        t = ticket_of_session(r, asked.identity, 0)
        -- Of a quorum, who has it in this generation is another try: if that is
        -- the later one, the client may have been told of it.
        if not t or
            number > 0 and sub(t.identity, 1, 4) == sub(asked.identity, 1, 4)
        then
            return nil
        end
        if r.pending and bit.band(t.flags, GRANTED) ~= 0 then
            -- Somebody may believe in what followed it.
            return nil, known and GRACE or CHANGED
        end
        -- A clock that is doubted has not ended it, but it is the session's.
        local over = t.flags == HELD and t.hold > 0 and t.hold <= now
        local fits = bit.band(t.flags, BROKEN) == 0 and not over and
            t.mode == asked.mode and t.permits == asked.permits and
            same_kind(r, limit)
        if not ticket_move(r, t, asked.identity) then
            return nil, MOVED_ON
        elseif not fits then
            ticket_drop(r, t)
            return nil
        elseif not fence_anew(r, t, seen) then
            return nil, CORRUPT
        elseif bit.band(t.flags, CLAIMED) == 0 then
            t.hold = asked.hold
        elseif asked.hold > 0 then -- it begins with this LOCK
            t.hold = now + asked.hold
        end
        t.part = asked.part
        words_anew(r, t, sub(arg, IDENTITY + ACQUIRE + 1))
        if bit.band(t.flags, GRANTED) ~= 0 then
            member_tell(r, JOINS, t, r.granted)
        end
    end
    return t
end

-- Why a new ticket may not stand in the queue, or nil.
local function refusal(r, t, flags, limit, blocked, seen)
    local base = t.mode == UPGRADE and base_of(r, t)
    if r.limit ~= limit then
        return CONFLICT
    elseif base and base.mode == SHARED and r.granted > 1 then
        return CONFLICT
    elseif bit.band(flags, NO_QUEUE) == 0 then
        sweep(r)
        return full(r) and not base and FULL or nil
    elseif r.pending then
        return known and GRACE or CHANGED
    elseif barred(r) or blocked and not base or not compatible(r, t) then
        return BUSY
    elseif not raise_fence(r.fence, r.id, seen) then
        return CORRUPT
    end
end

-- The place for a ticket with that arrival number, and whether a dead one has
-- it; nil: a living one has it.
local function place_for(r, arrival)
    local low, high = r.first, r.stored
    while low < high do
        local probe = high == r.stored and high - 1 or floor((low + high) / 2)
        local from = ticket_at(r, probe)
        local raw = call('GETRANGE', r.key, from,
            from + TICKET_FENCE - 1)
        local found = unpack_at('<d', raw, TICKET_ARRIVAL + 1)
        if found == arrival then
            if byte(raw) ~= 0 then
                return nil
            end
            return probe, true
        elseif found < arrival then
            low = probe + 1
        else
            high = probe
        end
    end
    return low, false
end

-- Makes room for a hold that its broker believes in: what does not go with it
-- and was granted before it, is no more. False where something was granted
-- after it, and so it is lost itself. The latest grant has the latest limit.
local function hold_fits(r, t, limit)
    local kind, latest = same_kind(r, limit), true
    local beside = mode_of(t).beside
    if t.fence <= r.fence then
        return false -- they know of it, and that it is over
    end
    for place, flags, raw, at in queue_walk(r, r.first) do
        local other = flags ~= 0 and ticket_unpack(place, raw, at)
        local granted = bit.band(flags, GRANTED) ~= 0
        local goes = kind and (not granted or limit > 0 or
            bit.band(beside, mode_of(other).flag) > 0 or
            sub(other.identity, IDENTITY_SESSION + 1, IDENTITY_REQUEST) ==
                counterpart(t.identity))
        if other and not goes then
            if other.fence > t.fence then
                return false
            end
            ticket_strike(r, other)
        end
        latest = latest and not (granted and goes and other.fence > t.fence)
    end
    if latest then
        r.limit = limit
    end
    return true
end

-- A ticket that stood there, and that the data know nothing of.
local function ticket_back(r, words, t, limit)
    local holds = t.fence > 0
    if holds and (not hold_fits(r, t, limit) or
        r.used + t.permits > ULONG_MAX) then
        return false
    elseif r.live == 0 then
        r.limit = limit
    elseif not same_kind(r, limit) then
        return false
    end
    widen(r, t.words)
    stands(r, t)
    local over
    t.place, over = place_for(r, t.arrival)
    if not t.place then
        r.arrival = max(r.arrival, now_us + FENCE_JUMP)
        t.place, t.arrival = r.stored, r.arrival
    end
    r.arrival = max(r.arrival, t.arrival + 1)
    if holds then
        joins(r, t)
        r.low = r.granted == 0 and t.ends or r.low
        r.granted, r.used = r.granted + 1, r.used + t.permits
        r.news = true
        r.longest, r.low = max(r.longest, t.lease), min(r.low, t.ends)
    else
        waits_until(r, t, t.ends)
    end
    ticket_put(r, words, t, over)
    if holds then
        member_tell(r, JOINS, t, r.granted)
    end
    return true
end

-- A broker says where its ticket stood.
local function reclaim(r, arg, t, limit, seen)
    if not known then
        return result(CHANGED)
    end
    t.arrival, t.fence =
        unpack_at(STOOD_AT_FORMAT, arg, IDENTITY + ACQUIRE + 1)
    local holds = t.fence > 0
    local there = ticket_of(r, t.identity, 0, t.arrival) or
        ticket_of_session(r, t.identity, 0)
    if there and not ticket_move(r, there, t.identity) then
        return result(MOVED_ON)
    end
    local fits = there and there.mode == t.mode and
        there.permits == t.permits and same_kind(r, limit)
    local granted = there and bit.band(there.flags, GRANTED) ~= 0
    if there and bit.band(there.flags, BROKEN) ~= 0 then
        return result(BROKEN_NOW)
    elseif fits and granted == holds and there.fence == t.fence then
        if there.flags == HELD then
            hold_as_told(there, t.hold)
        end
        ticket_again(r, there, t.lease)
        t = there
    elseif not bereft(r, t.fence) or
        there and not holds and (granted or not fits) then
        return result(GONE)
    else
        if there then
            ticket_strike(r, there)
        end
        if holds then
            ticket_hold(t)
            shows(r, t)
        end
        local alone = r.live == 0
        local words = sub(arg, IDENTITY + ACQUIRE + STOOD_AT + 1)
        if not ticket_back(r, words, t, limit) then
            result(GONE)
            return record_store(r)
        elseif holds and sole(r, t) then
            stamp(r, t.fence)
            -- Earlier waiters come back in order: brokers take their time.
            delay_from(r, {delay = min(BACK, settles_in)}, now)
        elseif not holds and alone and not r.pending then
            delay_from(r, {delay = min(GATHER, settles_in)}, now)
        end
    end
    local grants = serve(r, seen, t)
    result_of(r, t, grants)
    record_store(r)
end

return function(key, arg, read)
    local t, flags, limit, latest, seen = ticket_asked(arg)
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
    adopt(r)
    if bit.band(flags, STOOD) ~= 0 then
        return reclaim(r, arg, t, limit, seen)
    end
    local free = r.live == 0
    expire(r)
    if free and not barred(r) then
        return acquire_free(r, arg, t, limit, seen,
            raw ~= '' and not r.stamped and given_at(raw) or nil)
    end
    local tell = bit.band(flags, TELL) ~= 0
    local standing, refused = ticket_standing(r, t, flags, limit, seen, arg)
    local grants, blocked
    if standing then
        ticket_again(r, standing, t.lease)
        grants = serve(r, seen, standing)
        t = standing
    else
        grants, blocked = serve(r, seen)
        if r.live == 0 then
            r.limit = limit
        end
        refused = refused or refusal(r, t, flags, limit, blocked, seen)
        if refused then
            local busy = refused == BUSY
            r.refused = busy
            if busy and r.intents > 0 and t.mode < INTENT and
                r.live == r.granted then
                handed = bit.bor(handed, WAITED_FOR)
            end
            if busy and bit.band(flags, TELLS_WAIT) ~= 0 then
                pcall_redis('PUBLISH', channel .. 'watch', 'T' .. broker .. key)
            end
            result(refused, 0, 0, 0, busy and r.delay - now or 0,
                (busy or refused == GRACE) and ask_again(r) or ask_later(r),
                busy and r.live - r.granted + 1 or
                    refused == CONFLICT and r.limit or 0, grants,
                busy and tell and about_holder(r, t) or nil)
            return r.forget > 0 and record_store(r)
        end
        ticket_append(r, sub(arg, IDENTITY + ACQUIRE + 1), t)
        if not blocked or t.mode == UPGRADE then
            grants = serve(r, seen, t, grants)
        end
    end
    result_of(r, t, grants, tell)
    record_store(r)
end
end

-- Of an argument, permits and limit of what is no semaphore.
local ONE_PERMIT = '\1\0\0\0\0\0\0\0'
-- The flag of a ticket that stood there; it comes before the other bytes.
local STOOD_ASK = 16
-- Of the head, from the count of tickets to where those that wait begin; and to
-- the time of a hold, where nobody knows it.
local NEVER = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
local EMPTY = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
local IDLE = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
local idle_after = unpack_at('<I4', header, HEADER_IDLE_AFTER + 1)
local next_arrival = pack('<d', 2)
-- The bytes from mode to hold, which many arguments of a call have in common;
-- whether they are plain; what follows for head, ticket and result.
local common, plain, width, begins, held_state, idle_state, ends_raw
local ticket_end, result_end, holder, padding
local slow

local function prepare(asked)
    local mode, words, one, lease, delay, hold =
        unpack_at('<BI2c8I4I4d', asked)
    look()
    common, plain = asked, (mode == 0 or mode == 32) and one == ONE_PERMIT
    local term = hold > 0 and math.min(lease, hold) or lease
    local room = 64 * math.ceil(words / 64)
    width = pack('<I2I4', TICKET + room, 0)
    begins = '\7' .. sub(asked, 1, 7)
    held_state = SOLE .. pack('<I4I4I4', lease, 1, 1)
    ends_raw = pack('<d', now + term)
    idle_state = held_state .. '\0\0\0\0' .. ends_raw
    ticket_end = ends_raw .. pack('<dI4', hold > 0 and now + hold or 0, lease)
    holder = broker .. pack('<dI4I4', now_us, delay, 0)
    padding = string.rep('\0', room - words)
    result_end = pack('<I4I4I4', term, 0, 0)
end

-- The highest fence seen, or nil: not plain. Plain: exclusive, or of a part; of
-- one permit; no ticket that stood there.
local function asks_plainly(arg)
    local asked = sub(arg, IDENTITY + ACQUIRE_MODE + 1,
        IDENTITY + ACQUIRE_LATEST)
    if asked ~= common then
        prepare(asked)
    end
    if not plain or byte(arg, IDENTITY + ACQUIRE_FLAGS + 1) >= STOOD_ASK then
        return nil
    end
    local latest, seen = unpack_at('<dd', arg, IDENTITY + ACQUIRE_LATEST + 1)
    return now <= latest and seen or nil
end

-- A short cut: the first use of a name. False where it is not so plain.
local function acquire_first(key, arg)
    local seen = asks_plainly(arg)
    if not seen or not settled then
        return false
    end
    -- As of a record of another id, which begins as high.
    local fence = raise_fence(0, NO_ID, seen)
    if not fence or fence > clock_us + FENCE_JUMP then
        return false
    end
    local numbers = pack('<dd', 1, next_fence(fence))
    call('SET', key, '\1\0' .. width .. sub(numbers, 9) .. next_arrival ..
        idle_state .. NEVER .. pack('<dd', now + idle_after, 0) .. id ..
        begins .. numbers .. ticket_end .. sub(arg, 1, IDENTITY) .. holder ..
        sub(arg, IDENTITY + ACQUIRE + 1) .. padding, 'PX', idle_after)
    out[#out + 1] = RESULT_OK .. numbers .. result_end
    return true
end

-- A short cut: a free record of a lock that was used before, or none. False
-- where the record, or what is asked for, is not so plain.
local function acquire_plain(key, arg, raw)
    if raw == '' then
        return acquire_first(key, arg)
    end
    local typical
    if sub(raw, HEAD_STORED + 1, HEAD_LOW) ~= IDLE then
        if sub(raw, HEAD_STORED + 1, HEAD_TYPICAL) ~= EMPTY then
            return false
        end
        typical = sub(raw, HEAD_TYPICAL + 1, HEAD_LOW)
    end
    if sub(raw, 1, HEAD_FENCE) ~= PLAIN or #raw < HEAD + TICKET then
        return false
    end
    local seen = asks_plainly(arg)
    if not seen then
        return false
    end
    local fence, arrival = unpack_at('<dd', raw, HEAD_FENCE + 1)
    local old_id = sub(raw, HEAD_ID + 1, HEAD)
    if old_id ~= id and (not settled or fence == 0) then
        return false
    end
    local delay, forget = unpack_at('<dd', raw, HEAD_DELAY + 1)
    if delay > 0 then
        return false
    end
    fence = raise_fence(fence, old_id, seen,
        fence > now_us - FENCE_JUMP and given_at(raw) or nil)
    local left = forget - now - idle_after / 2
    if not fence or left < 0 or left * 1000 < fence - clock_us then
        return false
    end
    local state = idle_state
    if typical then
        state = held_state .. typical .. ends_raw
    end
    fence = next_fence(fence)
    local numbers = pack('<dd', arrival, fence)
    call('SETRANGE', key, TEXT(HEAD_WIDTH), width ..
        pack('<dd', fence, arrival + 1) .. state ..
        sub(raw, HEAD_SWEEP + 1, HEAD_ID) .. id ..
        begins .. numbers .. ticket_end .. sub(arg, 1, IDENTITY) .. holder ..
        sub(arg, IDENTITY + ACQUIRE + 1) .. padding)
    out[#out + 1] = RESULT_OK .. numbers .. result_end
    return true
end

for i = 1, #KEYS do
    local raw = pcall_redis('GETRANGE', KEYS[i], '0', TEXT(HEAD + TICKET - 1))
    if type(raw) ~= 'string'
        or not acquire_plain(KEYS[i], ARGV[i + 1], raw) then
        slow = slow or general()
        slow(KEYS[i], ARGV[i + 1], raw)
    end
end
return reply()

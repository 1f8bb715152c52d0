-- The record of a lock and how grants extend over it; the way that is always
-- right. For the plainest records, scripts have short cuts of hot operations.
--
-- A lock is one string: a head and then tickets of equal width, in order of
-- arrival. The granted are the longest compatible prefix of the living tickets.
-- daemon/store/wire/record.def has the layout of both. See DESIGN.md D1; D3.5
-- to D3.9 for data that may be old.
--
-- Words (owner, client name, note: a length byte and the bytes, each) only take
-- room where a ticket has any: the width then grows for the whole record.
--
-- A record has MODES_VERSION from the first ticket of a mode that earlier
-- brokers do not know until it is free: they refuse it. INTENTS_VERSION, of an
-- intention, has counts of these holders in place of the limit.

local VERSION, MODES_VERSION, INTENTS_VERSION = 1, 2, 3

-- In a record of an earlier history than its node's, a broker says that it
-- still holds its ticket: `shown` is the beginning of the node's id then.

-- Flags of a ticket. A grant to another broker's ticket is not CLAIMED until
-- that broker has asked for it, and lapses soon. A lapse suspends all other
-- tickets of that broker in this queue until it speaks again. BROKEN was a
-- holder's: nothing renews it any more.
local LIVING, GRANTED, CLAIMED, SUSPENDED, BROKEN = 1, 2, 4, 8, 16
local WAITS, HELD = 1, 7

-- Flags of the head: readers hold the lock; changes are told; waiters that the
-- data lack may still come back; the key's expiry is that of a renewed hold.
-- WANTED, of WATCHED: the first waiter, and the end of the last wait, are
-- changes, too. SINGLY, of WATCHED: each holder that comes, changes or goes is
-- told. UPGRADABLE_NOW: a hold of that mode stands alone, or beside readers.
-- UPGRADES: a ticket of that mode may live here.
local SHARED_NOW, WATCHED, BEREFT, KEPT, WANTED, SINGLY = 1, 2, 4, 8, 16, 32
local UPGRADABLE_NOW, UPGRADES = 64, 128
-- In memory alone, for the counts of these holders say the same.
local INTENT_NOW, INTENT_SHARED_NOW = 256, 512
local TOLD = 50 -- WATCHED, WANTED and SINGLY

-- Modes of a ticket. DETACHED is added to the mode of a detached hold. No
-- broker renews such a hold: `lease` is all of its term. Any client with its
-- fence releases or prolongs it. See DESIGN.md D9.5. An UPGRADE is the
-- exclusive hold, or the wait for it, of an owner that has another hold here.
-- See D1.8. An INTENT stands for holds of parts of what the lock protects: it
-- keeps out holds of the whole. An INTENT_SHARED stands for shared holds alone.
-- See D1.9. PART is added to the mode of a ticket whose owner has intentions
-- for it, at its broker.
local EXCLUSIVE, SHARED, DETACHED, UPGRADABLE, UPGRADE = 0, 1, 2, 4, 8
local INTENT, INTENT_SHARED, PART = 16, 17, 32

-- One line for each mode: its flag of the head, the flags of the holders that
-- it may join, and what a holder adds to the counts of intentions. A mode
-- without a flag is granted alone.
local modes = {
    [EXCLUSIVE] = {flag = 0, beside = 0, intents = 0},
    [SHARED] = {flag = SHARED_NOW, intents = 0,
        beside = SHARED_NOW + UPGRADABLE_NOW + INTENT_SHARED_NOW},
    [UPGRADABLE] = {flag = UPGRADABLE_NOW, intents = 0,
        beside = SHARED_NOW + INTENT_SHARED_NOW},
    [INTENT] = {flag = INTENT_NOW, intents = 65536,
        beside = INTENT_NOW + INTENT_SHARED_NOW},
    [INTENT_SHARED] = {flag = INTENT_SHARED_NOW, intents = 1,
        beside = SHARED_NOW + UPGRADABLE_NOW + INTENT_NOW + INTENT_SHARED_NOW},
}
local MODES_NOW = 833 -- the flags of all of them
local STANDING = 961 -- these and UPGRADES
local INTENTS_MAX = 65535 -- holders that an intention may join

-- The line of a mode. An unknown one is granted alone.
local function mode_of(t)
    return modes[t.mode] or modes[EXCLUSIVE]
end

-- A waiting ticket is asked after by its broker no sooner than this, in ms.
local AGAIN_MIN = 50

-- Tickets of the queue that are read at once, at first and at most.
local AHEAD_FIRST, AHEAD_MAX = 2, 64

-- The pause between two searches of a full queue for dead waiters, in s. A time
-- to come that is further off than SWEEP_FAR is not believed.
local SWEEP_PAUSE, SWEEP_FAR = 1, 86400

-- So many are granted in one step; the others are next.
local GRANTS_MAX = 1024

local floor, max, min = math.floor, math.max, math.min

-- The rest of the header. `expected`: the time, as the broker expects it.
-- `settles_in` and `steady_in`: ms until it is settled with the node, and with
-- its clock. `within`: the largest error of `expected`, in us (ULONG_MAX: any).
local _, _, lapse, _, _, forget_after, expected, waiters_max, _,
    settles_in, steady_in, within, idle_after = unpack_at(HEADER_FORMAT, header)
local channel = sub(header, HEADER + 1)

-- Whether the clock can be trusted to say that a lease is over.
local steady = within == ULONG_MAX or steady_in == 0 and
    math.abs(now_us - expected) < within

-- The fence that a record without one starts above: there may have been one.
local function first_fence()
    return clock_us + FENCE_JUMP
end

-- The head of a record, and its first ticket without its words; or a status if
-- it is none of ours.
local function record_check(raw)
    if type(raw) ~= 'string' then
        return nil, CORRUPT
    end
    if raw == '' then
        return raw
    end
    local version = byte(raw)
    if version > INTENTS_VERSION then
        return nil, NEWER
    end
    if version < VERSION or #raw < HEAD + TICKET then
        return nil, CORRUPT
    end
    return raw
end

-- The counts of holders with an INTENT_SHARED, and with an INTENT.
local function intents_split(intents)
    local shared = intents % 65536
    return shared, (intents - shared) / 65536
end

-- The flags of a head with those of intentions as the counts say.
local function flags_counted(flags, intents)
    local shared, others = intents_split(intents)
    return bit.bor(bit.band(flags, bit.bnot(INTENT_NOW + INTENT_SHARED_NOW)),
        shared > 0 and INTENT_SHARED_NOW or 0, others > 0 and INTENT_NOW or 0)
end

local function head_load(key, raw)
    local version, flags, width, limit, fence, arrival, stored, first, live,
        granted, longest, used, front, typical, low, sweep, delayed, delay,
        forget, watch, its_id = unpack_at(HEAD_FORMAT, raw)
    if width < TICKET or first > stored or granted > live or
        live > stored - first or used < granted or front > stored then
        return nil
    end
    if not (fence >= 0 and fence < FENCE_MAX) then -- no number, too
        return nil
    end
    if stored > 1 and call('STRLEN', key) < HEAD + stored * width then
        return nil
    end
    local intents = 0
    if version == INTENTS_VERSION then
        intents, limit = limit, 0
        local shared, others = intents_split(intents)
        if shared + others > granted then
            return nil
        end
        flags = flags_counted(flags, intents)
    end
    return {key = key, raw = raw, version = version, flags = flags,
        width = width, limit = limit, intents = intents, fence = fence,
        arrival = arrival, stored = stored, first = first, live = live,
        granted = granted, longest = longest, used = used, front = front,
        typical = typical, low = low, sweep = sweep, delayed = delayed,
        delay = delay, forget = forget, watch = watch, id = its_id,
        queued = live > granted, told = fence}
end

-- The record of a lock that Redis knows nothing of, not written yet.
local function head_new(key)
    return {key = key, raw = '', version = VERSION, flags = 0, width = TICKET,
        limit = 0, intents = 0, fence = settled and first_fence() or 0,
        arrival = 1, stored = 0, first = 0, live = 0, granted = 0,
        longest = 0, used = 0, front = 0, typical = 0, low = 0, sweep = 0,
        delayed = 0, delay = 0, forget = 0, watch = 0,
        id = settled and id or NO_ID, queued = false, told = 0}
end

local function head_pack(r)
    return pack(HEAD_FORMAT, r.version, bit.band(r.flags, 255), r.width,
        r.limit + r.intents, r.fence, r.arrival, r.stored, r.first, r.live,
        r.granted, r.longest, r.used, r.front, r.typical, r.low, r.sweep,
        r.delayed, r.delay, r.forget, r.watch, r.id)
end

local function ticket_at(r, place)
    return HEAD + place * r.width
end

-- `identity` is generation, session, owner and request.
local function ticket_unpack(place, raw, at)
    local flags, mode, words, permits, arrival, fence, ends, hold, lease,
        identity, holder, since, delay, shown =
        unpack_at(TICKET_FORMAT, raw, at)
    local detached, part = bit.band(mode, DETACHED) > 0, bit.band(mode, PART)
    return {place = place, flags = flags,
        mode = mode - part - (detached and DETACHED or 0),
        detached = detached, part = part, words = words,
        permits = permits, arrival = arrival, fence = fence, ends = ends,
        hold = hold, lease = lease, identity = identity, broker = holder,
        since = since, delay = delay, shown = shown}
end

local function ticket_pack(t)
    return pack(TICKET_FORMAT, t.flags,
        t.mode + t.part + (t.detached and DETACHED or 0), t.words, t.permits,
        t.arrival, t.fence, t.ends, t.hold, t.lease, t.identity, t.broker,
        t.since, t.delay, t.shown or 0)
end

-- For loops over the tickets, from that place on: the place, the flags, and the
-- bytes and where in them it begins. It reads ahead: what a loop changes, it
-- must have been at.
local function queue_walk(r, from_place)
    local place, ahead = from_place - 1, AHEAD_FIRST
    local raw, at = '', 1
    if from_place == 0 and r.raw then
        raw, at = r.raw, HEAD + 1 - r.width
    end
    return function()
        place, at = place + 1, at + r.width
        if place >= r.stored then
            return nil
        end
        if at > #raw then
            local from = ticket_at(r, place)
            raw, at = call('GETRANGE', r.key, from,
                from + ahead * r.width - 1), 1
            ahead = min(4 * ahead, AHEAD_MAX)
        end
        return place, byte(raw, at), raw, at
    end
end

-- The caller forgets what it read of the first ticket.
local function ticket_store(r, t)
    r.raw = nil
    call('SETRANGE', r.key, ticket_at(r, t.place), ticket_pack(t))
end

local function history()
    return tonumber(sub(id, 1, 8), 16)
end

-- The words of a ticket, and never what stands behind it.
local function words_of(r, t)
    local words = min(t.words, r.width - TICKET)
    if words == 0 then
        return ''
    end
    local from = ticket_at(r, t.place) + TICKET
    return call('GETRANGE', r.key, from, from + words - 1)
end

-- A message about holders to that channel. See daemon/core/feature/members.c.
-- The messages of a lock come in the order of its changes.
local function members_publish(r, to, kind, rows, tickets, count, sum, after)
    pcall_redis('PUBLISH', channel .. to, pack(MEMBERS_FORMAT, 80, kind,
        #r.key, rows, count, sum, history(), r.told, after) .. r.key ..
        tickets)
end

-- Tells that a holder comes, changes or goes. So many hold the lock then. Its
-- words are those of the record, unless they are not written yet.
local JOINS, CHANGES, LEAVES, PAGE, LAST = 0, 1, 2, 3, 4
local function member_tell(r, kind, t, count, words)
    if bit.band(r.flags, SINGLY) ~= 0 then
        members_publish(r, 'watch', kind, 1,
            ticket_pack(t) .. (words or words_of(r, t)), count, 0, 0)
        r.told = max(r.told, t.fence)
    end
end

-- Makes a ticket its broker's hold: from now on its lease, less where lease=
-- ends before.
local function ticket_hold(t)
    local term = t.lease
    t.flags = HELD
    if t.hold > 0 then
        term = min(term, t.hold)
        t.hold = now + t.hold
    end
    t.ends = now + term
end

-- Remembers how long holds of this lock last that others wait for, for whoever
-- asks how long a wait may take.
local function hold_over(r, t, at)
    if bit.band(t.flags, CLAIMED) == 0 or r.live == r.granted then
        return
    end
    local took = min(max(at - floor(t.since / 1000), 0), ULONG_MAX)
    if r.typical > 0 then
        took = (7 * r.typical + took) / 8
    end
    r.typical = max(floor(took), 1)
end

-- A holder of that mode has left holders of several modes. The flags are those
-- of the modes that are left.
local function modes_left(r, mode)
    r.intents = max(r.intents - mode.intents, 0)
    r.flags = flags_counted(r.flags, r.intents)
    local shared, others = intents_split(r.intents)
    local upgradable = bit.band(r.flags, UPGRADABLE_NOW) > 0 and 1 or 0
    if r.granted == shared + others + upgradable then
        r.flags = bit.band(r.flags, bit.bnot(SHARED_NOW))
    end
end

-- A ticket is granted no more. The flag of readers who are alone stays until
-- the next grant.
local function ungrant(r, t)
    local mode = mode_of(t)
    r.granted, r.news = r.granted - 1, true
    r.used = r.used - t.permits
    if bit.band(mode.flag, mode.beside) == 0 then
        r.flags = bit.band(r.flags, bit.bnot(mode.flag))
    end
    if bit.band(r.flags, MODES_NOW) > SHARED_NOW then
        modes_left(r, mode)
    end
    member_tell(r, LEAVES, t, r.granted)
end

-- Strikes a living ticket out. In front of the queue that costs no write.
local function ticket_strike(r, t)
    if bit.band(t.flags, GRANTED) ~= 0 then
        ungrant(r, t)
    end
    r.live = r.live - 1
    r.raw = nil
    t.flags = 0
    if t.place == r.first then
        r.first = r.first + 1
    else
        call('SETRANGE', r.key, ticket_at(r, t.place), '\0')
    end
end

-- How long a key stays; see DESIGN.md D11. A free record is needed for no more
-- than this:
--
-- 1. The fence: a new record begins above it as soon as the fence clock has
--    passed it (call.lua). An idle_after more covers what the brokers' fence
--    clocks may differ by: each tells the others within ten seconds.
-- 2. The lock-delay, the watch, and waiters that may still come back (BEREFT)
--    after a failover: until these are over.
-- 3. The id: an unsettled broker takes a free record of the node's own id, and
--    no missing one. That one waits like any lock after a failover.
-- 4. Arrival numbers begin at 1 again. A ticket is told by its request as well,
--    which no broker gives twice; limit= and mode end with the last ticket.
--
-- So it stays for idle_after, which is two and a half leases at least, and half
-- of that after what is ahead has passed. A hold has half of it at its grant,
-- and is kept for forget_after once its renewals find less. If a clock set
-- forward takes younger holds away, their brokers put them back (LEAP).

-- How much longer the key stays than the rest says, in ms.
local function spare(r)
    return max(fence_ahead(r.fence), believed(r.delay - now))
end

-- Whether the key's expiry must be put off. Each of the two roundings since the
-- last time may have cost a ms.
local function forgets_soon(r)
    return r.forget - now < idle_after / 2 + spare(r) - 2
end

-- Its new term from now on.
local function forget_in(r, term)
    term = max(term, floor(idle_after / 2) + spare(r))
    r.forget = now + term
    return term
end

-- Writes the head, and the id if it changed. Keeps the key from expiring while
-- anybody lives or watches, or something ahead has to pass, and no longer.
-- Squeezes dead tickets out if they are too many.
local function record_write(r)
    local old = r.stored
    local used = r.live > 0 or now < r.watch
    if (used or spare(r) > 0) and forgets_soon(r) or
        not used and bit.band(r.flags, KEPT) ~= 0 then
        call('PEXPIRE', r.key, forget_in(r, idle_after))
        r.flags = bit.band(r.flags, STANDING + TOLD + BEREFT)
    end
    if r.live == 0 then
        r.stored, r.first, r.longest = 0, 0, 0
        r.width, r.limit, r.front = TICKET, 0, 0
        r.version = VERSION
        r.flags = bit.band(r.flags, TOLD + BEREFT + KEPT)
        if old > 16 then
            call('SET', r.key, head_pack(r) .. string.rep('\0', TICKET),
                'KEEPTTL')
            return
        end
    elseif old - r.live > r.live + 16 then
        local raw = call('GETRANGE', r.key, ticket_at(r, r.first),
            ticket_at(r, old) - 1)
        local kept, from = {}
        for at = 1, #raw + 1, r.width do
            local flags = byte(raw, at) or 0 -- 0 at the end, too
            if flags ~= 0 then
                from = from or at
            elseif from then
                kept[#kept + 1] = sub(raw, from, at - 1)
                from = nil
            end
        end
        r.stored, r.first, r.front = r.live, 0, 0
        call('SET', r.key, head_pack(r) .. table.concat(kept),
            'KEEPTTL')
        return
    end
    call('SETRANGE', r.key, 0, head_pack(r))
end

-- Tells watchers that there is something new: somebody was granted it, or has
-- it no more. They ask for the rest.
local function watchers_tell(r)
    if now >= r.watch then
        r.watch = 0
        r.flags = bit.band(r.flags, STANDING + BEREFT + KEPT)
    elseif r.news or bit.band(r.flags, WANTED) ~= 0 and
        r.queued ~= (r.live > r.granted) then
        pcall_redis('PUBLISH', channel .. 'watch', 'W' .. r.key)
    end
end

-- Tells the brokers of intentions that others want the lock.
local function intents_call(r)
    if r.refused or r.live > r.granted and (r.given or not r.queued) then
        pcall_redis('PUBLISH', channel .. 'watch', 'I' .. r.key)
    end
end

local function record_store(r)
    if r.watch > 0 then
        watchers_tell(r)
    end
    if r.intents > 0 then
        intents_call(r)
    end
    record_write(r)
end

-- The ticket with that number at that offset, dead or alive, or nil: where the
-- broker remembers it, or by bisection, since arrival numbers grow with the
-- places. So do most fences of holders; waiters behind them have 0.
local function ticket_find(r, place, wanted, offset)
    local low, high = r.first, r.stored - 1
    local probe = place
    while low <= high do
        if not probe or probe < low or probe > high then
            probe = floor((low + high) / 2)
        end
        local raw, at = r.raw, HEAD + 1
        if probe > 0 or not raw then
            local from = ticket_at(r, probe)
            raw, at = call('GETRANGE', r.key, from, from + TICKET - 1), 1
        end
        local found = unpack_at('<d', raw, at + offset)
        if found == wanted then
            return ticket_unpack(probe, raw, at)
        elseif 0 < found and found < wanted then
            low = probe + 1
        else
            high = probe - 1
        end
        probe = nil
    end
    return nil
end

-- The first living ticket with these bytes at that offset that `fits` (nil:
-- any), or nil.
local function ticket_with(r, bytes, offset, fits)
    local raw = call('GETRANGE', r.key, '0', '-1')
    local at = ticket_at(r, r.first) + 1
    while true do
        at = raw:find(bytes, at, true)
        if not at then
            return nil
        end
        local from = at - offset
        local place = (from - 1 - HEAD) / r.width
        if place == floor(place) and place < r.stored and
            byte(raw, from) ~= 0 then
            local t = ticket_unpack(place, raw, from)
            if not fits or fits(t) then
                return t
            end
        end
        at = at + 1
    end
end

-- The holder with that fence, or nil.
local function ticket_of_fence(r, fence)
    local t = ticket_find(r, nil, fence, TICKET_FENCE)
    if t and t.flags ~= 0 then
        return t
    end
    return ticket_with(r, pack('<d', fence), TICKET_FENCE)
end

-- The living ticket of an operation, or nil.
local function ticket_of(r, identity, place, arrival)
    local t
    if arrival > 0 then
        t = ticket_find(r, place, arrival, TICKET_ARRIVAL)
    else
        -- Its broker does not know where it stands. Dead ones of the same
        -- identity may stand before it.
        t = ticket_with(r, identity, TICKET_IDENTITY)
    end
    if t and t.flags ~= 0 and t.identity == identity then
        return t
    end
    return nil
end

-- The living ticket of that session and owner with that fence (0: any),
-- whatever its generation, or nil. A detached hold is no session's.
local function ticket_of_session(r, identity, fence)
    if r.live == 0 then
        return nil
    end
    return ticket_with(r, sub(identity, IDENTITY_SESSION + 1, IDENTITY_REQUEST),
        TICKET_IDENTITY + IDENTITY_SESSION, function(t)
            return not t.detached and (fence == 0 or t.fence == fence)
        end)
end

-- Gives a ticket to a later generation of its session, whose broker asks. False
-- where it is of a later one still, or of this one at another broker.
local function ticket_move(r, t, identity)
    local old, new = unpack_at('<I4', t.identity), unpack_at('<I4', identity)
    if old > new or (old == new and t.broker ~= broker) then
        return false
    end
    if t.broker ~= broker then
        pcall_redis('PUBLISH', channel .. t.broker,
            'M' .. sub(t.identity, IDENTITY_REQUEST + 1) ..
            sub(identity, 1, IDENTITY_SESSION))
    end
    t.identity, t.broker = identity, broker
    return true
end

-- Suspends what a broker has waiting: it let a grant lapse.
local function suspend(r, broker_id)
    for place, flags, raw, at in queue_walk(r, r.first) do
        if flags == WAITS and
            sub(raw, at + TICKET_BROKER, at + TICKET_SINCE - 1) == broker_id
        then
            r.raw = nil
            call('SETRANGE', r.key, ticket_at(r, place),
                string.char(WAITS + SUSPENDED))
        end
    end
end

-- Nobody is granted it for the ticket's lock-delay.
local function delay_from(r, t, from)
    r.delayed = max(now < r.delay and r.delayed or 0, t.delay)
    r.delay = max(r.delay, from + t.delay)
end

-- Ends a ticket of a session that asks for the lock anew. It is a broken hold,
-- an unknown hold whose lease may be over, or a wait for another kind of lock.
local function ticket_drop(r, t)
    hold_over(r, t, now)
    if t.delay > 0 and bit.band(t.flags, CLAIMED) ~= 0 then
        delay_from(r, t, now)
    end
    ticket_strike(r, t)
end

-- Strikes out holders whose lease is over; by a clock that may have stepped,
-- only those whose broker has not claimed the grant. A lease that ends later
-- than one lease from now was written before the clock stepped back: it is cut.
-- A detached hold is cut to what it was to last for.
local function expire_holders(r)
    if r.granted == 0 or r.pending or
        (now < r.low and r.low <= now + r.longest) then
        return
    end
    local left, low = r.granted, now + r.longest
    for place, flags, raw, at in queue_walk(r, r.first) do
        if bit.band(flags, GRANTED) ~= 0 then
            left = left - 1
            local t = ticket_unpack(place, raw, at)
            local lapsed = bit.band(t.flags, CLAIMED) == 0
            if t.ends <= now and (steady or lapsed) then
                hold_over(r, t, t.ends)
                ticket_strike(r, t)
                if lapsed then
                    suspend(r, t.broker)
                elseif t.delay > 0 then
                    delay_from(r, t, t.ends)
                end
            else
                local most = now + (t.detached and t.lease or r.longest)
                if t.ends > most then
                    t.ends = most
                    ticket_store(r, t)
                end
                low = min(low, t.ends)
            end
        end
        if left == 0 then
            break
        end
    end
    r.low = low
end

-- Ends what is over by now.
local function expire(r)
    expire_holders(r)
    r.delay = min(r.delay, now + r.delayed) -- or the clock stepped back
    if r.delay <= now then
        r.delay, r.delayed = 0, 0
    end
end

-- Session and owner of an upgrade, from those of the hold below it, and the
-- other way round.
local function counterpart(identity)
    local session = sub(identity, IDENTITY_SESSION + 1, IDENTITY_OWNER)
    local first = bit.bxor(byte(identity, IDENTITY_OWNER + 1), 1)
    return session .. string.char(first) ..
        sub(identity, IDENTITY_OWNER + 2, IDENTITY_REQUEST)
end

-- The hold below an upgrade, or nil.
local function base_of(r, t)
    return ticket_with(r, counterpart(t.identity),
        TICKET_IDENTITY + IDENTITY_SESSION, function(other)
            return bit.band(other.flags, GRANTED) ~= 0 and not other.detached
        end)
end

-- Whether a ticket may join those that are granted, and whether none may.
local function compatible(r, t)
    if r.limit > 0 then
        return r.used + t.permits <= r.limit
    end
    local held, mode = bit.band(r.flags, MODES_NOW), mode_of(t)
    return r.granted == 0 or
        held > 0 and bit.band(held, mode.beside) == held and
            (mode.intents == 0 or r.granted < INTENTS_MAX) or
        t.mode == UPGRADE and r.granted == 1 and base_of(r, t) ~= nil
end

local function closed(r)
    if r.limit > 0 then
        return r.used >= r.limit
    end
    return r.granted > 0 and bit.band(r.flags, MODES_NOW) == 0
end

-- Whether a ticket with that limit= is of this kind of lock. RESIZE changes the
-- limit of a semaphore, so two tickets of one semaphore may have two limits.
local function same_kind(r, limit)
    return (r.limit > 0) == (limit > 0)
end

-- Whether nobody is granted anything now.
local function barred(r)
    return r.pending or now < r.delay
end

-- Whether nobody else may stand in the queue.
local function full(r)
    return r.live - r.granted >= waiters_max
end

-- Makes room in a full queue for one more: strikes out waiters whose life is
-- over. As it walks along all of it, it does so only where there may be one.
local function sweep(r)
    local second = floor(now / 1000)
    if not full(r) or not steady or
        (second < r.sweep and r.sweep <= second + SWEEP_FAR) then
        return
    end
    local left, earliest = r.live - r.granted, now + 1000 * SWEEP_FAR
    for place, flags, raw, at in queue_walk(r, max(r.first, r.front)) do
        if bit.band(flags, LIVING + GRANTED) == LIVING then
            left = left - 1
            local ends = unpack_at('<d', raw, at + TICKET_ENDS)
            if ends <= now then
                ticket_strike(r, {place = place, flags = flags})
            else
                earliest = min(earliest, ends)
            end
        end
        if left == 0 then
            break
        end
    end
    r.sweep = max(floor(earliest / 1000), second + SWEEP_PAUSE)
end

-- The end of a holder's new lease. It is no sooner than before: a broker with
-- longer leases may have told that. An end further off than any lease was
-- written before the clock stepped back.
local function ends_anew(r, t, lease)
    return max(now + lease, min(t.ends, now + r.longest))
end

-- The end of a lease= in a record older than the broker's question, or by a
-- clock that may have stepped. It may have been put off since, or seem to be
-- over. Its client believes its broker's own clock: so many ms are `left` (0:
-- that knows of no end).
local function hold_as_told(t, left)
    if t.hold > 0 and left > 0 then
        t.hold = max(t.hold, now + left)
    end
end

-- The record is up to date with the node's id from now on. Fences go on above
-- all that may have been given out before; `fence` is the last that is known.
local function stamp(r, fence)
    local first = r.fence == 0 and first_fence() or 0
    r.fence = max(raise_fence(max(r.fence, fence), r.id, 0), first)
    r.id, r.pending, r.stamped = id, nil, true
    r.flags = bit.band(r.flags, STANDING + TOLD + KEPT)
    if not settled then
        r.flags = r.flags + BEREFT
    end
end

-- A waiter's life ends then, from now on.
local function waits_until(r, t, ends)
    t.ends, r.sweep = ends, min(r.sweep, floor(ends / 1000))
end

-- Takes over the holders of a record that another id wrote. Its data may be
-- older than later grants, and the ends of leases are another clock's. Holders
-- renew it within a lease from now. Returns the largest fence.
-- A grant that its broker had not claimed is none: another one may have
-- followed it. Nobody renews a detached hold: its end stands.
local function adopt_holders(r)
    local left, fence, low = r.granted, 0, now + r.longest
    for place, flags, raw, at in queue_walk(r, r.first) do
        if left == 0 then
            break
        end
        if bit.band(flags, GRANTED) ~= 0 then
            left = left - 1
            local t = ticket_unpack(place, raw, at)
            fence = max(fence, t.fence)
            if t.detached then
                low = min(low, t.ends)
            elseif bit.band(flags, CLAIMED + BROKEN) ~= 0 then
                t.ends = now + r.longest
                if t.hold > 0 then
                    t.hold = max(t.hold, t.ends)
                end
            else
                ungrant(r, t)
                r.front = min(r.front, place)
                t.flags, t.fence = WAITS, 0
                waits_until(r, t, now + t.lease)
            end
            ticket_store(r, t)
        end
    end
    r.low = low
    return fence
end

-- Comes first with a record that may be of another id. A settled broker brings
-- it up to date. For another one it is pending, and nobody is granted anything.
local function adopt(r)
    if r.id == id and not (settled and bit.band(r.flags, BEREFT) ~= 0) then
        return
    end
    if not settled then
        r.pending = true
        return
    end
    stamp(r, r.granted > 0 and r.id ~= id and adopt_holders(r) or 0)
    record_write(r)
    r.raw = nil
end

-- Whether a ticket that is not there may have been lost.
local function bereft(r, fence)
    return r.pending or fence == 0 and bit.band(r.flags, BEREFT) ~= 0
end

-- The flags of the head with that ticket as one more that is granted.
local function flags_with(r, t)
    local others = r.granted > 0 and STANDING or UPGRADES
    return bit.bor(bit.band(r.flags, TOLD + BEREFT + KEPT + others),
        mode_of(t).flag)
end

-- One more is granted. A record of an earlier version has no intentions.
local function joins(r, t)
    r.flags = flags_with(r, t)
    if r.version == INTENTS_VERSION then
        r.intents = r.intents + mode_of(t).intents
    end
end

-- A new ticket stands in the record. No semaphore has intentions.
local function stands(r, t)
    if r.live == 0 then
        r.version = VERSION
    end
    if t.mode >= INTENT and r.limit == 0 then
        r.version = INTENTS_VERSION
    elseif t.mode > SHARED then
        r.version = max(r.version, MODES_VERSION)
    end
    if t.mode == UPGRADE then
        r.flags = bit.bor(r.flags, UPGRADES)
    end
end

-- The broker of a hold says in this history that it is there.
local function shows(r, t)
    t.shown = r.pending and history() or t.shown
end

local function has_shown(t)
    return t.shown == history()
end

-- Whether a hold shows by itself that nobody else holds the lock.
local function sole(r, t)
    return r.limit == 0 and t.mode == EXCLUSIVE
end

-- Makes a living ticket a holder: for its whole term where its broker is the
-- one that asks, else until that broker claims it.
local function grant(r, t)
    joins(r, t)
    r.fence, r.news, r.given = next_fence(r.fence), true, true
    t.fence = r.fence
    if t.broker == broker then
        ticket_hold(t)
    else
        t.flags, t.ends = LIVING + GRANTED, now + min(t.lease, lapse)
    end
    t.since = now_us
    r.low = r.granted == 0 and t.ends or min(r.low, t.ends)
    r.granted, r.used = r.granted + 1, r.used + t.permits
    r.longest = max(r.longest, t.lease)
    ticket_store(r, t)
    member_tell(r, JOINS, t, r.granted)
end

-- Has a ticket's broker look for it now. `fence`: it was granted with that; 0:
-- it still waits.
local function hint(t, fence)
    pcall_redis('PUBLISH', channel .. t.broker,
        pack('<c1c8d', 'G', sub(t.identity, IDENTITY_REQUEST + 1), fence))
end

-- Tells a ticket's broker of its grant: in the result if it asks about another
-- ticket, else by a hint.
local function announce(r, t, own, grants)
    if t.broker ~= broker then
        handed = bit.bor(handed, HANDED)
        hint(t, t.fence)
    elseif t ~= own then
        grants[#grants + 1] = pack(GRANT_FORMAT,
            sub(t.identity, IDENTITY_REQUEST + 1), t.fence, t.arrival,
            t.ends - now, t.place, r.limit)
    end
end

-- An upgrade stands before all waiters while its owner has the hold below it.
-- It is granted once no other hold is left. Returns whether it keeps the others
-- out. The hold below came first, and stands in front.
local function upgrade(r, seen, own, grants)
    local bases, left = {}, false
    for place, flags, raw, at in queue_walk(r, r.first) do
        local granted = bit.band(flags, GRANTED) ~= 0
        local mode = byte(raw, at + TICKET_MODE)
        if flags ~= 0 and bit.band(mode, UPGRADE) > 0 then
            local t = own and own.place == place and own or
                ticket_unpack(place, raw, at)
            left = true
            if granted then
                return true
            elseif flags == WAITS and not (steady and t.ends <= now) and
                bases[counterpart(t.identity)] then
                local fence = r.granted == 1 and not barred(r) and
                    raise_fence(r.fence, r.id, seen)
                if fence then
                    r.fence, r.id = fence, id
                    grant(r, t)
                    announce(r, t, own, grants)
                end
                return true
            end
        elseif granted and bit.band(mode, DETACHED) == 0 then
            bases[sub(raw, at + TICKET_IDENTITY + IDENTITY_SESSION,
                at + TICKET_IDENTITY + IDENTITY_REQUEST - 1)] = true
        end
    end
    if not left then
        r.flags = bit.band(r.flags, bit.bnot(UPGRADES))
    end
    return false
end

-- Extends the grants to the longest compatible prefix. Returns the grants to
-- tell the asking broker, without its own operation's ticket, and whether
-- somebody is left waiting; `grants` are those that it is to be told of
-- already. On its way it strikes out waiters whose life is over.
local function serve(r, seen, own, grants)
    grants = grants or {}
    if r.limit == 0 and bit.band(r.flags, UPGRADES) ~= 0 and
        upgrade(r, seen, own, grants) then
        return grants, true
    end
    local waiting = r.live - r.granted
    if waiting == 0 then
        return grants, false
    end
    if barred(r) or closed(r) then
        return grants, true
    end
    local given, blocked, whole = 0, false, true
    for place, flags, raw, at in queue_walk(r, max(r.first, r.front)) do
        local waits = bit.band(flags, LIVING + GRANTED) == LIVING
        if waits then
            waiting = waiting - 1
        elseif flags == 0 and place == r.first then
            r.first = place + 1
        end
        if waits and steady and
            unpack_at('<d', raw, at + TICKET_ENDS) <= now then
            ticket_strike(r, {place = place, flags = flags})
        elseif flags == WAITS then
            local t = own and own.place == place and own or
                ticket_unpack(place, raw, at)
            local fence = compatible(r, t) and raise_fence(r.fence, r.id, seen)
            if fence and given < GRANTS_MAX then
                r.fence, r.id = fence, id
                grant(r, t)
                announce(r, t, own, grants)
                given, blocked = given + 1, t.mode == UPGRADE
            else
                blocked, whole = true, false
                if fence then
                    handed = bit.bor(handed, MORE)
                end
            end
        elseif waits then
            whole = false
        end
        if whole then
            r.front = place + 1
        end
        if waiting == 0 or blocked then
            break
        end
    end
    return grants, blocked
end

-- When a waiting ticket's broker should ask again, in ms from now.
local function ask_again(r)
    local at = r.granted > 0 and r.low or now
    if at <= now and not steady then
        at = now + steady_in
    end
    if r.pending then
        at = now + settles_in
    elseif barred(r) then
        at = closed(r) and max(at, r.delay) or r.delay
    end
    return min(max(at - now, AGAIN_MIN), ULONG_MAX)
end

-- When whoever has no ticket here must ask, since the others that wait would
-- not be served when a lock-delay is over; 0: need not.
local function ask_later(r)
    return r.live > r.granted and barred(r) and ask_again(r) or 0
end

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

-- Gives a ticket the words of who asks now.
local function words_anew(r, t, words)
    if #words == 0 and t.words == 0 then
        return
    end
    widen(r, #words)
    t.words = #words
    call('SETRANGE', r.key, ticket_at(r, t.place) + TICKET,
        words .. string.rep('\0', r.width - TICKET - #words))
    r.raw = nil
end

-- The holder in the way: how long holds last in ms (0: nobody knows), the age
-- of the first hold, and its words. No upgrade waits for the hold below it.
local function about_holder(r, asked)
    if r.granted == 0 then
        return nil
    end
    local base = asked.mode == UPGRADE and base_of(r, asked)
    for place, flags, raw, at in queue_walk(r, r.first) do
        if bit.band(flags, GRANTED) ~= 0 and
            not (base and base.place == place) then
            local t = ticket_unpack(place, raw, at)
            return pack(ABOUT_FORMAT, r.typical,
                min(max(now - floor(t.since / 1000), 0), ULONG_MAX)) ..
                words_of(r, t)
        end
    end
end

-- The limit of the semaphore for the result of a hold; and whether others wait
-- for an intention.
local function limit_told(r, t)
    if t.mode >= INTENT and r.live > r.granted then
        handed = bit.bor(handed, WAITED_FOR)
    end
    if r.limit > 0 and r.used > r.limit then
        handed = bit.bor(handed, BEYOND)
    end
    return r.limit
end

-- The result of a ticket that lives, holder or waiter. Its place in the queue
-- is exact where it has just been put; later the dead in front of it count.
-- With a waiter goes what `kind` says of it, or who is in its way.
local function result_of(r, t, grants, tell, kind)
    if bit.band(t.flags, GRANTED) ~= 0 and
        not (r.pending and bit.band(t.flags, CLAIMED) == 0) then
        result(OK, t.place, t.arrival, t.fence, t.ends - now, 0,
            limit_told(r, t), grants)
    else
        handed = bit.bor(handed, r.pending and UNSETTLED or 0)
        result(WAITING, t.place, t.arrival, 0, t.ends - now, ask_again(r),
            t.mode == UPGRADE and 1 or
                max(min(t.place - r.first + 1, r.live) - r.granted, 1), grants,
            kind or tell and about_holder(r, t) or nil)
    end
end

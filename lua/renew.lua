#!lua flags=allow-oom
-- renew: says that a ticket's broker is there. A holder's lease is extended, a
-- grant that another broker made is claimed, a waiter keeps its place. Expiry
-- runs no script of its own, so it is looked for here.
--
-- KEYS: the locks. ARGV: the header, then one string with IDENTITY and RENEW
-- for each lock (see record.def).
-- It never brings an ended ticket back. GONE: the ticket has ended. MISSING:
-- the data may be older than the ticket, which may be put again (acquire), or
-- than the end of one to be taken over; for so many ms (again). CHANGED: the
-- broker does not know the node's id, and may believe in what was lost with the
-- last one; nothing was done. Flags:
--   1  no ticket, only look for what is due
--   2  the end that a client asked for, be it nearer. Without it no lease is
--      shortened: the renewal may be an old one that was redirected and
--      overtaken by a client's own
--   4  the ticket is of an earlier generation of this session: take it over
--   8  say who is in the way
--  16  from now on the hold shares
--  32  for a lease from now on, tell of changes
--  64  a hold whose fence is lower than `seen` has that one from now on, or
--      one that is larger
-- 128  with 64: it has just that one, which a majority has agreed on
-- 256  with 4: the broker that the ticket is of holds it still
-- 512  the lease of a hold that the broker has not heard of may be over. Such a
--      hold ends, since older data may not show who followed it.
-- 1024 with 32: the first waiter, and the end of the last wait, are changes.
-- 2048 the hold is detached from now on, for `hold` ms.
-- 4096 no ticket, but the detached hold with that fence: it ends in `hold` ms.
--      CONFLICT: that hold is not detached.
-- 16384 with 32: tell each holder that comes, changes or goes. The holders
--      whose arrival is later than `arrival` are told to this broker now.
-- 8192 from now on the hold has other words. These three stand behind the
--      argument, each with a byte for its length.
-- 32768 no ticket: the semaphore has `keeps` permits from now on. The result
--      has this limit, and in `place` the permits that are out. GONE: the lock
--      has no ticket. CONFLICT: it is no semaphore.
--
-- `keeps`: a hold of a semaphore has so many permits at most from now on (0:
-- all that it has). The result of a hold has the limit of the semaphore
-- (ahead), or 0.
--
-- The result of a hold that ends by itself says in how many ms (again), as far
-- as that goes. The result of a ticket taken over has its kind: mode B, permits
-- I4, limit I4, delay I4, hold d, and its words. Hold: ms left to it, or that a
-- waiter gets; 0: no end.
--@include call.lua

local arguments = ARGV[2]

-- The way for every record.
local function general()
    look()
--@include record.lua

local LOOK, SETS_END, MOVES, TELL, SHARES, WATCH = 1, 2, 4, 8, 16, 32
local RAISES, AGREED, HOLDS, OVERDUE, WAITERS = 64, 128, 256, 512, 1024
local DETACHES, BY_FENCE, WORDS, HOLDERS = 2048, 4096, 8192, 16384
local RESIZES = 32768
local NO_WORDS = '\0\0\0'

-- Of holders that are told at once, and approximately of their bytes.
local PAGE_MAX, PAGE_BYTES = 500, 65536

-- In how many ms a hold ends by itself; 0: it does not.
local function end_of(t)
    return t.hold > 0 and max(t.hold - now, 1) or 0
end

local function hold_result(r, t, grants, about)
    result(OK, t.place, t.arrival, t.fence, t.ends - now,
        min(end_of(t), ULONG_MAX), limit_told(r, t), grants, about)
end

-- The kind of a ticket that was taken over, or nil.
local function kind_of(r, t, moves)
    if not moves then
        return nil
    end
    local hold = bit.band(t.flags, GRANTED) ~= 0 and end_of(t) or t.hold
    return pack(KIND_FORMAT, t.mode + t.part, t.permits, r.limit, t.delay,
        hold) .. words_of(r, t)
end

-- Extends a hold in place; the head is touched only where it must be.
local function hold_extend(r, t, ask)
    local term = ask.lease
    if ask.hold > 0 and ask.hold < term then
        term = ask.hold
    end
    if ask.ends then
        t.hold = ask.hold > 0 and now + ask.hold or 0
        t.ends = now + term
    else
        t.ends = ends_anew(r, t, term)
        if t.hold > 0 then
            t.ends = min(t.ends, max(t.hold, now + 1))
        end
    end
    call('SETRANGE', r.key, ticket_at(r, t.place) + TICKET_ENDS,
        pack('<dd', t.ends, t.hold))
    r.raw = nil
    -- The adoption may have put somebody back into the queue, and waiters may
    -- fit into permits that were given back.
    local serves = r.stamped or ask.fewer
    local grants = serves and serve(r, ask.seen, t) or nil
    local soon = forgets_soon(r)
    if soon then
        call('PEXPIRE', r.key, forget_in(r, max(forget_after, idle_after)))
        r.flags = bit.bor(r.flags, KEPT)
    end
    if soon or serves or r.news or r.longest < ask.lease or
        t.ends < r.low then
        r.longest = max(r.longest, ask.lease)
        r.low = min(r.low, t.ends)
        record_store(r)
    end
    hold_result(r, t, grants, kind_of(r, t, ask.moves))
end

-- A hold ends sooner than others know. The first waiter's broker has the timer
-- of the queue: it looks again, and so do watchers.
local function sooner_tell(r)
    r.news = true
    for place, flags, raw, at in queue_walk(r, max(r.first, r.front)) do
        if flags == WAITS then
            return hint(ticket_unpack(place, raw, at), 0)
        end
    end
end

-- The hold lasts for so many ms from now, and its key for longer.
local function hold_detach(r, t, term, seen, kind)
    local was = t.detached
    r.news = r.news or not was
    if now + term < t.ends then
        sooner_tell(r)
    end
    t.detached, t.lease, t.hold, t.ends = true, term, now + term, now + term
    r.low = min(r.low, t.ends)
    ticket_store(r, t)
    if not was then
        member_tell(r, CHANGES, t, r.granted)
    end
    local rest = floor(idle_after / 2) + spare(r)
    if r.forget < t.ends + rest then
        call('PEXPIRE', r.key, forget_in(r, term + rest))
        r.flags = bit.bor(r.flags, KEPT)
    end
    local grants = r.stamped and serve(r, seen, t) or nil
    hold_result(r, t, grants, kind)
    record_store(r)
end

-- Passes on what has expired; the answer is `status`, or that of `own`.
local function pass_on(r, seen, status, own, tell, moves)
    expire(r)
    local grants, blocked = serve(r, seen, own)
    if own and bit.band(own.flags, GRANTED) ~= 0 then
        hold_result(r, own, grants, kind_of(r, own, moves))
    elseif own then
        result_of(r, own, grants, tell, kind_of(r, own, moves))
    else
        -- If all waiters are suspended, their broker must ask.
        local waits = blocked and (r.granted > 0 or barred(r))
        result(status, 0, 0, 0, 0, waits and ask_again(r) or 0, 0, grants)
    end
    record_store(r)
end

-- Nothing is done for the ticket; but whoever the adoption has put back into
-- the queue may be next.
local function not_so(r, seen, status)
    if r.stamped then
        return pass_on(r, seen, status)
    end
    result(status, 0, 0, 0, 0, status == MISSING and settles_in or 0)
end

-- Tells this broker of the holders whose arrival is later than `after`, as far
-- as a message has room; and a sum of the fences of all holders.
local function members_show(r, after)
    local left, sum, bytes, rows, kind = r.granted, 0, 0, {}, LAST
    r.raw = nil -- has no words
    for _, flags, raw, at in queue_walk(r, r.first) do
        if left == 0 then
            break
        end
        if bit.band(flags, GRANTED) ~= 0 then
            left = left - 1
            local arrival, fence = unpack_at('<dd', raw, at + TICKET_ARRIVAL)
            sum = math.fmod(sum + math.fmod(fence, 4294967296), 4294967296)
            if arrival > after and #rows < PAGE_MAX and bytes < PAGE_BYTES then
                local words = unpack_at('<I2', raw, at + TICKET_WORDS)
                local row = sub(raw, at,
                    at + TICKET + min(words, r.width - TICKET) - 1)
                rows[#rows + 1], bytes = row, bytes + #row
            elseif arrival > after then
                kind = PAGE
            end
        end
    end
    r.told = r.fence
    members_publish(r, broker, kind, #rows, table.concat(rows),
        r.granted - left, sum, after)
end

-- Nobody's ticket: what is due, and who wants to hear of it.
local function look_after(key, raw, flags, lease, seen, after)
    local watch = bit.band(flags, WATCH) ~= 0
    local r
    if raw ~= '' then
        r = head_load(key, raw)
    elseif watch then
        r = head_new(key)
        call('SET', key, string.rep('\0', HEAD + TICKET), 'PX',
            forget_in(r, idle_after))
    end
    if not r then
        return result(raw == '' and GONE or CORRUPT)
    end
    adopt(r)
    if watch then
        r.watch = max(r.watch, now + lease)
        r.flags = bit.bor(r.flags, WATCHED,
            bit.band(flags, WAITERS) ~= 0 and WANTED or 0,
            bit.band(flags, HOLDERS) ~= 0 and SINGLY or 0)
    end
    pass_on(r, seen, OK)
    if bit.band(flags, HOLDERS) ~= 0 and settled then
        members_show(r, after)
    end
end

-- The answer to a claim of a hold that old data may have brought back, though
-- its broker gave it back and a later one is believed in. Nil: not so. Nobody
-- knows until its broker has shown it, or all others have shown their holds.
local function claim_refused(r, t, seen, holds)
    if bit.band(t.flags, GRANTED + BROKEN) ~= GRANTED or has_shown(t) or
        (holds and t.broker == broker) then
        return nil
    elseif r.pending then
        not_so(r, seen, MISSING)
    elseif r.limit > 0 and r.used > r.limit then
        ticket_strike(r, t) -- others have shown that it is none
        pass_on(r, seen, GONE)
    else
        return nil
    end
    return true
end

-- Whether the hold gives some of its permits back.
local function gives_back(r, t, keeps)
    if r.limit == 0 or keeps == 0 or t.permits <= keeps then
        return false
    end
    r.used, t.permits = r.used - t.permits + keeps, keeps
    return true
end

-- How long the client of a hold may believe in it, as its broker knows, in ms.
-- Of one that another broker had, or that is claimed for the second time, that
-- does not know the end: the client may have been told of a whole lease.
local function hold_left(r, ask)
    if ask.moves and not ask.ends and not (ask.own and ask.hold > 0) then
        return max(ask.hold, ask.lease, r.longest)
    end
    return ask.hold
end

-- A detached hold is prolonged by its fence. Old data may show one that was
-- given back: nobody knows before the broker is settled.
local function detached_speaks(r, fence, term, seen)
    local t = ticket_of_fence(r, fence)
    if r.pending then
        return not_so(r, seen, MISSING)
    elseif not t or bit.band(t.flags, BROKEN) ~= 0 or
        t.ends <= now and steady then
        return pass_on(r, seen, GONE)
    elseif not t.detached then
        return not_so(r, seen, CONFLICT)
    end
    hold_detach(r, t, term, seen)
end

-- The smaller limit has an effect on the tickets. More permits may be out: then
-- nobody is granted any until enough are back, and a CLAIM of a hold is no sign
-- of old data (claim_refused). A waiter for more permits than there are ends.
-- Its broker looks for it, and asks anew.
local function shrink(r, limit)
    local beyond = r.used <= r.limit and r.used > limit
    for place, flags, raw, at in queue_walk(r, r.first) do
        local t = flags ~= 0 and ticket_unpack(place, raw, at)
        if t and bit.band(flags, GRANTED) == 0 and t.permits > limit then
            ticket_strike(r, t)
            hint(t, 0)
        elseif t and beyond and bit.band(flags, GRANTED) ~= 0 then
            t.shown = history()
            ticket_store(r, t)
        end
    end
end

-- A semaphore has another limit from now on.
local function resize(r, limit, seen)
    if r.pending then
        return not_so(r, seen, MISSING)
    end
    expire(r)
    if r.live == 0 or r.limit == 0 then
        return pass_on(r, seen, r.live == 0 and GONE or CONFLICT)
    end
    if limit < r.limit then
        shrink(r, limit)
    end
    r.limit = limit
    local grants = serve(r, seen)
    result(OK, r.used, 0, 0, 0, 0, limit, grants)
    record_store(r)
end

-- A holder says that it is there.
local function hold_speaks(r, t, ask)
    local claims = bit.band(t.flags, CLAIMED) == 0
    if r.pending and claims then
        return result_of(r, t, nil, false, kind_of(r, t, ask.moves))
    elseif t.ends <= now and steady and not r.pending then
        return pass_on(r, ask.seen, GONE)
    end
    -- A detached hold is no owner's, so no upgrade stands above or below one.
    -- No intention becomes a hold of the whole.
    local other = ask.detaches and bit.band(r.flags, UPGRADES) ~= 0 and
        base_of(r, t)
    local parted = other and (t.mode == UPGRADE or other.mode == UPGRADE) or
        (ask.detaches or ask.shares) and t.mode >= INTENT
    if parted or bit.band(t.flags, BROKEN) ~= 0 then
        -- Its broker gives it back, or its lease ends: a client that claims it
        -- elsewhere believes in it until the answer is there.
        if ask.moves and ask.own then
            ticket_store(r, t)
        end
        return not_so(r, ask.seen, BROKEN_NOW)
    end
    if ask.raises and (t.fence < ask.seen or
        ask.agreed and t.fence > ask.seen) then
        if ask.seen > now_us + FENCE_FAR then
            return result(CORRUPT)
        end
        -- Another one that shares it may have that number here.
        local free = ask.agreed or ask.seen > r.fence or
            math.fmod(ask.seen, 16) > 0
        t.fence = free and ask.seen or own_fence(r.fence)
        -- Watchers that looked meanwhile were told of a smaller one.
        r.fence, r.news = max(r.fence, t.fence), true
        ticket_store(r, t)
    end
    if ask.words then
        words_anew(r, t, ask.words ~= NO_WORDS and ask.words or '')
        ticket_store(r, t)
        r.news = true
        member_tell(r, CHANGES, t, r.granted)
    end
    if claims then
        ticket_hold(t)
    elseif ask.older or not steady then
        ask.hold = hold_left(r, ask)
        hold_as_told(t, ask.hold)
    end
    if r.pending and sole(r, t) and not ask.shares then
        stamp(r, t.fence)
    elseif r.pending and not has_shown(t) then
        shows(r, t)
        ticket_store(r, t)
    end
    ask.fewer = gives_back(r, t, ask.keeps)
    if ask.fewer then
        member_tell(r, CHANGES, t, r.granted)
    end
    if ask.shares and (claims or ask.moves or t.mode ~= SHARED) then
        -- A quorum's waiters stand in no record.
        r.news = r.news or number > 0
        if t.ends <= now then -- by a clock that is doubted, or in old data
            t.ends = now + ask.lease
            if t.hold > 0 then
                t.ends = min(t.ends, max(t.hold, now + 1))
            end
        end
        r.flags = bit.band(r.flags, bit.bnot(mode_of(t).flag))
        t.mode, t.ends = SHARED, min(t.ends, now + r.longest)
        r.flags, r.low = flags_with(r, t), min(r.low, t.ends)
        ticket_store(r, t)
        if not ask.detaches then
            return pass_on(r, ask.seen, OK, t, false, ask.moves)
        end
    elseif claims or ask.moves or ask.fewer then
        ticket_store(r, t)
    end
    if ask.detaches then
        return hold_detach(r, t, ask.told, ask.seen, kind_of(r, t, ask.moves))
    elseif ask.moves or not claims or ask.fewer then
        return hold_extend(r, t, ask)
    end
    hold_result(r, t)
    if t.ends < r.low or r.news then
        r.low = min(r.low, t.ends)
        record_store(r)
    end
end

-- The words behind an argument, which ends at `at`, or nil.
local function words_at(at)
    local flags = unpack_at('<I2', arguments, at - RENEW + RENEW_FLAGS + 1)
    if bit.band(flags, WORDS) == 0 then
        return nil
    end
    local from = at
    for _ = 1, 3 do
        at = at + 1 + byte(arguments, at + 1)
    end
    return sub(arguments, from + 1, at)
end

local function renew(key, arg, read, words)
    local place, arrival, fence, flags, lease, hold, keeps, latest, seen =
        unpack_at(RENEW_FORMAT, arg, IDENTITY + 1)
    if now > latest then
        return result(LATE)
    end
    local raw, wrong = record_check(read)
    if not raw then
        return result(wrong)
    end
    if bit.band(flags, LOOK) ~= 0 then
        return look_after(key, raw, flags, lease, seen, arrival)
    end
    if not known then
        return result(CHANGED)
    end
    local r = raw ~= '' and head_load(key, raw)
    if not r then
        if raw ~= '' or settled then
            return result(raw ~= '' and CORRUPT or GONE)
        end
        return result(MISSING, 0, 0, 0, 0, settles_in)
    end
    local older = r.id ~= id
    adopt(r)
    if bit.band(flags, BY_FENCE) ~= 0 then
        return detached_speaks(r, fence, hold, seen)
    elseif bit.band(flags, RESIZES) ~= 0 then
        return resize(r, keeps, seen)
    end
    local identity = sub(arg, 1, IDENTITY)
    local moves = bit.band(flags, MOVES) ~= 0
    local t
    if moves then
        t = ticket_of_session(r, identity, fence)
    else
        t = ticket_of(r, identity, place, arrival)
    end
    if not t or (fence > 0 and t.fence ~= fence) then
        -- Or the data do not know that its session has moved here.
        local lost = bereft(r, fence) or bereft(r, 0) and
            ticket_of_session(r, identity, fence)
        return not_so(r, seen, lost and MISSING or GONE)
    end
    if t.detached and bit.band(flags, DETACHES) == 0 then
        return pass_on(r, seen, GONE) -- it is older than the detachment
    end
    local own = t.broker == broker
    -- The intentions for a part stay at their broker, and so does the part.
    if moves and not own and bit.band(t.flags, GRANTED) ~= 0 and
        (t.part > 0 or t.mode >= INTENT) then
        return not_so(r, seen, GONE)
    end
    if moves then
        if claim_refused(r, t, seen, bit.band(flags, HOLDS) ~= 0) then
            return
        elseif not ticket_move(r, t, identity) then
            return not_so(r, seen, MOVED_ON)
        end
    end
    if bit.band(flags, OVERDUE) ~= 0 and bit.band(t.flags, CLAIMED) ~= 0 then
        ticket_drop(r, t)
        return pass_on(r, seen, GONE)
    end
    if bit.band(t.flags, GRANTED) ~= 0 then
        return hold_speaks(r, t, {lease = lease, hold = hold, seen = seen,
            ends = bit.band(flags, SETS_END) ~= 0, moves = moves, own = own,
            older = older, shares = bit.band(flags, SHARES) ~= 0,
            raises = bit.band(flags, RAISES) ~= 0,
            agreed = bit.band(flags, AGREED) ~= 0, keeps = keeps,
            detaches = bit.band(flags, DETACHES) ~= 0, told = hold,
            words = words})
    end
    if r.limit > 0 and t.permits > r.limit and not r.pending then
        ticket_strike(r, t)
        return pass_on(r, seen, GONE)
    end
    expire(r) -- first, for it may suspend this broker's tickets
    t.flags = WAITS
    waits_until(r, t, now + lease)
    ticket_store(r, t)
    pass_on(r, seen, OK, t, bit.band(flags, TELL) ~= 0, moves)
end

-- Returns the bytes of words behind the argument, which begins after `at`.
return function(key, at, read)
    local words = words_at(at + IDENTITY + RENEW)
    renew(key, sub(arguments, at + 1, at + IDENTITY + RENEW), read, words)
    return words and #words or 0
end
end

-- Of the head: stored and first, where there is one ticket alone.
local ALONE = '\1\0\0\0\0\0\0\0'
local NOTHING = '\0\0\0\0'
local find = string.find
local idle_after = unpack_at('<I4', header, HEADER_IDLE_AFTER + 1)
-- Flags, lease, hold, keeps and latest, as many renewals of a call have them in
-- common; whether that is plain, and what follows from it.
local common, plain, lease, till, ends_raw, result_end
-- The id of the node, and behind it the flags of a holder.
local mine
local slow

local function prepare(asked)
    local flags, hold, keeps, latest
    look()
    common, mine = asked, id .. '\7'
    flags, lease, hold, keeps, latest = unpack_at('<I2I4dI4d', asked)
    plain = known and flags == 0 and hold == 0 and keeps == 0 and now <= latest
    till = now + lease
    ends_raw, result_end = pack('<d', till), pack('<I4I4', lease, 0)
end

-- A short cut: a holder in the first place, whose lease is the usual one, of a
-- record whose head needs no change. False where it is anything else. (A dead
-- ticket in front of the first keeps its flags. The longest lease of the head
-- is at least that of each ticket that is granted.) Bytes are compared in the
-- record itself, since Redis hashes each string that is made. `at` is the end
-- of the argument before its own.
local function renew_plain(key, at, raw)
    local asked = sub(arguments, at + IDENTITY + RENEW_FLAGS + 1,
        at + IDENTITY + RENEW_SEEN)
    if asked ~= common then
        prepare(asked)
    end
    local numbers = sub(arguments, at + IDENTITY + RENEW_ARRIVAL + 1,
        at + IDENTITY + RENEW_FLAGS)
    if not plain or byte(raw) ~= 1 or
        (find(raw, ALONE, HEAD_STORED + 1, true) ~= HEAD_STORED + 1 and
            (sub(raw, HEAD_FIRST + 1, HEAD_LIVE) ~= NOTHING or
            sub(raw, HEAD_STORED + 1, HEAD_FIRST) == NOTHING)) or
        find(raw, mine, HEAD_ID + 1, true) ~= HEAD_ID + 1 or
        find(raw, numbers, HEAD + TICKET_ARRIVAL + 1, true) ~=
            HEAD + TICKET_ARRIVAL + 1 or
        find(raw, sub(arguments, at + 1, at + IDENTITY),
            HEAD + TICKET_IDENTITY + 1, true) ~= HEAD + TICKET_IDENTITY + 1 then
        return false
    end
    local ends, over, usual =
        unpack_at('<ddI4', raw, HEAD + TICKET_ENDS + 1)
    if ends <= now or ends > till or over > 0 or usual ~= lease or
        unpack_at('<d', raw, HEAD_FORGET + 1) - now < idle_after / 2 then
        return false
    end
    call('SETRANGE', key, TEXT(HEAD + TICKET_ENDS), ends_raw)
    out[#out + 1] = RESULT_OK .. numbers .. result_end ..
        sub(raw, HEAD_LIMIT + 1, HEAD_FENCE)
    return true
end

local at = 0
for i = 1, #KEYS do
    local raw = pcall_redis('GETRANGE', KEYS[i], '0', TEXT(HEAD + TICKET - 1))
    if type(raw) ~= 'string' or not renew_plain(KEYS[i], at, raw) then
        slow = slow or general()
        at = at + slow(KEYS[i], at, raw)
    end
    at = at + IDENTITY + RENEW
end
return reply()

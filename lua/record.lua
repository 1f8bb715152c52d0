-- The record of a lock and how grants extend over it; the way that is always
-- right. What is hot has short cuts in the scripts, for the plainest records.
--
-- A lock is one string: a head and then tickets of equal width, in order of
-- arrival. The granted are the longest compatible prefix of the living tickets.
-- Everything is little-endian; 'd' holds integers below 2^53. The same layout
-- is read in C by daemon/store/record.c.
--
-- head, 120 bytes                      ticket, 96 bytes, then words
--   0 version     B                      0 flags    B  see below
--   1 flags       B  none yet            1 mode     B  0 exclusive
--   2 width       I2 of a ticket         2 words    I2 bytes of words in use
--   4 limit       I4 permits, or 0       4 permits  I4
--   8 fence       d  the last one        8 arrival  d  unique, grows
--  16 arrival     d  the next one       16 fence    d  0: not granted yet
--  24 stored      I4 tickets, any state 24 ends     d  ms; of lease, or of life
--  28 first       I4 none lives before  32 hold     d  ms asked by lease=, or 0
--  32 live        I4 living tickets     40 lease    I4 ms
--  36 granted     I4 of them granted    44 generation I4
--  40 longest     I4 lease in use, ms   48 session  c16
--  44 spare       I4                    64 owner    c8 hash of the owner's word
--  48 low         d  no lease of the    72 request  c8 the broker's handle
--                    granted ends sooner 80 broker   c8
--  56 grace       d  no grant sooner    88 since    d  ms, of arrival or grant
--  64 delay       d  no grant sooner
--  72 forget      d  the key's expiry
--  80 id          c40 replication id at the last grant or renewal
--
-- Words (owner, client name, note: a length byte and the bytes, each) only take
-- room where a ticket has any: the width then grows for the whole record.

local VERSION = 1
local HEAD_FORMAT = '<BBI2I4ddI4I4I4I4I4I4dddd'
local TICKET_FORMAT = '<BBI2I4ddddI4I4c16c8c8c8d'
local GRANT_FORMAT = '<c8ddI4I4'

-- Flags of a ticket. A grant to another broker's ticket is not CLAIMED until
-- that broker has asked for it, and lapses soon; a lapse suspends what else
-- that broker has in this queue until it speaks again.
local LIVING, GRANTED, CLAIMED, SUSPENDED = 1, 2, 4, 8
local WAITS, HELD = LIVING, LIVING + GRANTED + CLAIMED

-- A waiting ticket is asked after by its broker no sooner than this, in ms.
local AGAIN_MIN = 50

local floor, max, min = math.floor, math.max, math.min

-- The rest of the header. What the broker expects the time to be, and the id
-- that it last saw, are carried for the rule of settled brokers.
local _, _, lapse, _, realtime_us, forget_after, expected, waiters_max,
    settled_id = unpack_at(HEADER_FORMAT, header)
local channel = sub(header, 81)

-- The fence that a record without one starts above.
local function first_fence()
    if realtime_us > now_us and realtime_us < now_us + FENCE_FAR then
        return realtime_us
    end
    return now_us
end

-- The first `TICKET` bytes of a record's head and first ticket, or a status.
local function read_record(key)
    local raw = pcall_redis('GETRANGE', key, 0, HEAD + TICKET - 1)
    if type(raw) ~= 'string' then
        return nil, CORRUPT
    end
    if raw == '' then
        return raw
    end
    local version = raw:byte(1)
    if version > VERSION then
        return nil, NEWER
    end
    if version < VERSION or #raw < HEAD + TICKET then
        return nil, CORRUPT
    end
    return raw
end

local function head_load(key, raw)
    local _, flags, width, limit, fence, arrival, stored, first, live, granted,
        longest, spare, low, grace, delay, forget = unpack_at(HEAD_FORMAT, raw)
    if width < TICKET or first > stored or granted > live or
        live > stored - first then
        return nil
    end
    if stored > 1 and call('STRLEN', key) < HEAD + stored * width then
        return nil
    end
    return {key = key, raw = raw, flags = flags, width = width, limit = limit,
        fence = fence, arrival = arrival, stored = stored, first = first,
        live = live, granted = granted, longest = longest, spare = spare,
        low = low, grace = grace, delay = delay, forget = forget,
        id = sub(raw, 81, HEAD)}
end

-- The record of a lock that Redis knows nothing of, not written yet.
local function head_new(key)
    return {key = key, raw = '', flags = 0, width = TICKET, limit = 0,
        fence = first_fence(), arrival = 1, stored = 0, first = 0, live = 0,
        granted = 0, longest = 0, spare = 0, low = 0, grace = 0, delay = 0,
        forget = 0, id = id}
end

local function head_pack(r)
    return pack(HEAD_FORMAT, VERSION, r.flags, r.width, r.limit, r.fence,
        r.arrival, r.stored, r.first, r.live, r.granted, r.longest, r.spare,
        r.low, r.grace, r.delay, r.forget)
end

local function ticket_at(r, place)
    return HEAD + place * r.width
end

local function ticket_load(r, place)
    local raw
    if place == 0 and r.raw then
        raw = sub(r.raw, HEAD + 1)
    else
        local at = ticket_at(r, place)
        raw = call('GETRANGE', r.key, at, at + TICKET - 1)
    end
    local flags, mode, words, permits, arrival, fence, ends, hold, lease,
        generation, session, owner, request, holder, since =
        unpack_at(TICKET_FORMAT, raw)
    return {place = place, raw = raw, flags = flags, mode = mode, words = words,
        permits = permits, arrival = arrival, fence = fence, ends = ends,
        hold = hold, lease = lease, generation = generation, session = session,
        owner = owner, request = request, broker = holder, since = since}
end

local function ticket_pack(t)
    return pack(TICKET_FORMAT, t.flags, t.mode, t.words, t.permits, t.arrival,
        t.fence, t.ends, t.hold, t.lease, t.generation, t.session, t.owner,
        t.request, t.broker, t.since)
end

-- The caller forgets what it read of the first ticket.
local function ticket_store(r, t)
    r.raw = nil
    call('SETRANGE', r.key, ticket_at(r, t.place), ticket_pack(t))
end

-- How long a grant lasts at first, in ms.
local function ticket_term(t)
    if t.hold > 0 then
        return min(t.lease, t.hold)
    end
    return t.lease
end

-- Strikes a living ticket out. In front of the queue that costs no write.
local function ticket_strike(r, t)
    if bit.band(t.flags, GRANTED) ~= 0 then
        r.granted = r.granted - 1
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

-- Writes the head, and the id where it changed; keeps the key from expiring
-- while anybody lives; and squeezes dead tickets out where they are too many.
local function record_store(r)
    local old = r.stored
    if r.live == 0 then
        r.stored, r.first, r.low, r.longest = 0, 0, 0, 0
        r.width, r.limit = TICKET, 0
        if old > 16 then
            call('SET', r.key, head_pack(r) .. r.id .. string.rep('\0', TICKET),
                'KEEPTTL')
            return
        end
    elseif old - r.live > r.live + 16 then
        local raw = call('GETRANGE', r.key, ticket_at(r, r.first),
            ticket_at(r, old) - 1)
        local kept = {}
        if old - r.first == r.live then
            kept[1] = raw
        else
            for at = 1, #raw, r.width do
                if raw:byte(at) ~= 0 then
                    kept[#kept + 1] = sub(raw, at, at + r.width - 1)
                end
            end
        end
        r.stored, r.first = r.live, 0
        call('SET', r.key, head_pack(r) .. r.id .. table.concat(kept),
            'KEEPTTL')
        return
    end
    if r.live > 0 and r.forget - now < forget_after / 2 then
        r.forget = now + forget_after
        call('PEXPIRE', r.key, forget_after)
    end
    call('SETRANGE', r.key, 0, head_pack(r) .. r.id)
end

-- The place of the ticket with that arrival number, or nil: where the broker
-- remembers it, or by bisection, since arrivals grow with the places.
local function ticket_find(r, place, arrival)
    local low, high = r.first, r.stored - 1
    local probe = place
    while low <= high do
        if not probe or probe < low or probe > high then
            probe = floor((low + high) / 2)
        end
        local at = ticket_at(r, probe) + 8
        local found
        if probe == 0 and r.raw then
            found = unpack_at('<d', r.raw, HEAD + 9)
        else
            found = unpack_at('<d', call('GETRANGE', r.key, at, at + 7))
        end
        if found == arrival then
            return probe
        elseif found < arrival then
            low = probe + 1
        else
            high = probe - 1
        end
        probe = nil
    end
    return nil
end

-- The place of the living ticket of an operation whose broker does not know
-- where it stands. Dead ones of the same identity may stand before it.
local function ticket_search(r, identity)
    local raw = call('GETRANGE', r.key, 0, -1)
    local at = HEAD + r.first * r.width + 1
    while true do
        at = raw:find(identity, at, true)
        if not at then
            return nil
        end
        local place = (at - 1 - 44 - HEAD) / r.width
        if place == floor(place) and place < r.stored and
            raw:byte(ticket_at(r, place) + 1) ~= 0 then
            return place
        end
        at = at + 1
    end
end

-- The living ticket of an operation, or nil. `identity` is generation, session,
-- owner and request, as they stand in the ticket.
local function ticket_of(r, identity, place, arrival)
    local found
    if arrival > 0 then
        found = ticket_find(r, place, arrival)
    else
        found = ticket_search(r, identity)
    end
    if not found or found < r.first then
        return nil
    end
    local t = ticket_load(r, found)
    if t.flags == 0 or sub(t.raw, 45, 80) ~= identity then
        return nil
    end
    return t
end

-- Suspends what a broker has waiting: it let a grant lapse.
local function suspend(r, broker_id)
    for place = r.first, r.stored - 1 do
        local t = ticket_load(r, place)
        if t.flags == WAITS and t.broker == broker_id then
            r.raw = nil
            call('SETRANGE', r.key, ticket_at(r, place),
                string.char(WAITS + SUSPENDED))
        end
    end
end

-- Strikes out holders whose lease is over. A lease that ends later than one
-- lease from now was written before the clock stepped back, and is cut.
local function expire(r)
    if r.granted == 0 or (now < r.low and r.low <= now + r.longest) then
        return
    end
    local left, place = r.granted, r.first
    local low = now + r.longest
    while left > 0 and place < r.stored do
        local t = ticket_load(r, place)
        if bit.band(t.flags, GRANTED) ~= 0 then
            left = left - 1
            if t.ends <= now then
                local lapsed = bit.band(t.flags, CLAIMED) == 0
                ticket_strike(r, t)
                if lapsed then
                    suspend(r, t.broker)
                end
            else
                if t.ends > now + r.longest then
                    t.ends = now + r.longest
                    ticket_store(r, t)
                end
                low = min(low, t.ends)
            end
        end
        place = place + 1
    end
    r.low = low
end

-- Whether a ticket may join those that are granted.
local function compatible(r, t)
    return r.granted == 0
end

-- Makes a living ticket a holder: for its whole term where its broker is the
-- one that asks, else until that broker claims it.
local function grant(r, t)
    local term = ticket_term(t)
    t.flags = LIVING + GRANTED
    if t.broker == broker then
        t.flags = HELD
    else
        term = min(term, lapse)
    end
    r.fence = r.fence + 1
    t.fence = r.fence
    t.ends = now + term
    t.since = now
    r.low = r.granted == 0 and t.ends or min(r.low, t.ends)
    r.granted = r.granted + 1
    r.longest = max(r.longest, t.lease)
    ticket_store(r, t)
end

-- Extends the grants to the longest compatible prefix. Returns the grants to
-- tell the asking broker, without its own operation's ticket; other brokers get
-- a hint on their channel.
local function serve(r, seen, own)
    if r.granted == r.live or now < r.grace or now < r.delay then
        return nil
    end
    local grants
    local place, left = r.first, r.live
    while left > 0 and place < r.stored do
        local t = own and own.place == place and own or ticket_load(r, place)
        if t.flags ~= 0 then
            left = left - 1
        end
        if bit.band(t.flags, LIVING + GRANTED) == LIVING and t.ends <= now then
            ticket_strike(r, t)
        elseif t.flags == WAITS then
            if not compatible(r, t) then
                break
            end
            local fence = raise_fence(r.fence, r.id, seen)
            if not fence then
                break
            end
            r.fence, r.id = fence, id
            grant(r, t)
            if t.broker ~= broker then
                handed = 1
                call('PUBLISH', channel .. t.broker,
                    pack('<c1c8d', 'G', t.request, t.fence))
            elseif t ~= own then
                grants = grants or {}
                grants[#grants + 1] = pack(GRANT_FORMAT, t.request, t.fence,
                    t.arrival, t.ends - now, t.place)
            end
        elseif t.flags == 0 and place == r.first then
            r.first = place + 1
        end
        place = place + 1
    end
    return grants
end

-- When a waiting ticket's broker should ask again, in ms from now.
local function ask_again(r)
    local at = r.granted > 0 and r.low or now
    at = max(at, r.grace, r.delay)
    return max(at - now, AGAIN_MIN)
end

-- The result of a ticket that lives, holder or waiter. Its place in the queue
-- is exact where it has just been put; later the dead in front of it count.
local function result_of(r, t, grants)
    if bit.band(t.flags, GRANTED) ~= 0 then
        result(OK, t.place, t.arrival, t.fence, t.ends - now, 0, 0, grants)
    else
        result(WAITING, t.place, t.arrival, 0, t.ends - now, ask_again(r),
            min(t.place - r.first + 1, r.live) - r.granted, grants)
    end
end

#!lua
-- check: whether a fence is still good, and remembers it if so.
--
-- For any resource that cannot compare fences by itself: ask before each write,
-- and write only after 1.
--
-- KEYS: where the highest fence is kept. ARGV: the fence.
-- 1: it is the highest so far, or the same as that; 0: a later holder was here.
local seen = tonumber(redis.call('GET', KEYS[1]) or '0')
local fence = tonumber(ARGV[1])
if not string.find(ARGV[1], '^%d+$') or fence < 1 or
    fence >= 9007199254740992 then
    return redis.error_reply('ERR the fence is not a number below 2^53')
end
if not seen then
    return redis.error_reply('ERR ' .. KEYS[1] .. ' is no fence')
end
if fence < seen then
    return 0
end
if fence > seen then
    redis.call('SET', KEYS[1], ARGV[1])
end
return 1

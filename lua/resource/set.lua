#!lua
-- set: writes a value, unless a later holder has been here.
--
-- KEYS: the value's key, and where the highest fence is kept (in a cluster of
-- the same slot). ARGV: the fence, the value.
-- 1: written; 0: the fence is stale, and nothing was.
local seen = tonumber(redis.call('GET', KEYS[2]) or '0')
local fence = tonumber(ARGV[1])
if not string.find(ARGV[1], '^%d+$') or fence < 1 or
    fence >= 9007199254740992 then
    return redis.error_reply('ERR the fence is not a number below 2^53')
end
if not seen then
    return redis.error_reply('ERR ' .. KEYS[2] .. ' is no fence')
end
if fence < seen then
    return 0
end
redis.call('SET', KEYS[2], ARGV[1])
redis.call('SET', KEYS[1], ARGV[2])
return 1

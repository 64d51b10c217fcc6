-- Ends a run, if the event is held and by its token; or looks how the run ended.
-- KEYS[1] the event; ARGV: token, state, look, how long to remember in ms, reply.
-- Answers "settled", "held" (looked, and it is not) or "lost".
local v = redis.call('HMGET', KEYS[1], 'state', 'token')
local state, mine = v[1], v[2] == ARGV[1]

if mine and state == ARGV[2] and state ~= '1' then
  return {'settled'} -- a second time: the first answer was lost
end
if not mine or state ~= '1' then
  return {'lost'}
end
if ARGV[3] == '1' then
  return {'held'}
end

redis.call('HSET', KEYS[1], 'state', ARGV[2], 'crashes', '0')
if ARGV[2] == '2' and (ARGV[5] ~= '0' or ARGV[6] ~= '' or ARGV[7] ~= '') then
  redis.call('HSET', KEYS[1], 'status', ARGV[5], 'type', ARGV[6], 'body', ARGV[7])
end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return {'settled'}

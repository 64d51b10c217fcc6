-- Gives an event to a token if it is free.
-- KEYS[1] the event; ARGV: token, lease in microseconds, digest, how long to remember in ms.
-- Answers texts: granted, state, fence, run, crashes, lease left, age, digest, reply.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2] -- microseconds stay exact in a double for 200 years

local v = redis.call('HMGET', KEYS[1], 'state', 'token', 'until', 'fence', 'run', 'crashes', 'since', 'digest',
  'status', 'type', 'body')
local state, token = tonumber(v[1] or '0'), v[2]
local ends, fence, run, crashes = tonumber(v[3] or '0'), tonumber(v[4] or '0'), tonumber(v[5] or '0'), tonumber(v[6] or '0')
local since, digest = tonumber(v[7] or now), v[8] or ARGV[3]

local function text(n) return string.format('%.0f', n) end

local function answer(granted)
  return {granted, text(state), text(fence), text(run), text(crashes), text(math.max(ends - now, 1)),
    text(math.max(now - since, 0)), digest, v[9] or '', v[10] or '', v[11] or ''}
end

if state == 1 and token == ARGV[1] then
  return answer('1') -- the same run, which did not hear the first answer
end
if state >= 2 or state == 1 and ends > now then
  return answer('0')
end

if state == 1 then crashes = crashes + 1 end
state, fence, run, ends = 1, fence + 1, run + 1, now + tonumber(ARGV[2])
redis.call('HSET', KEYS[1], 'state', '1', 'token', ARGV[1], 'until', text(ends), 'fence', text(fence), 'run', text(run),
  'crashes', text(crashes), 'since', text(since), 'digest', digest)
-- Never shorter than the lease, whatever was asked for.
redis.call('PEXPIRE', KEYS[1], text(math.max(tonumber(ARGV[4]), math.ceil(tonumber(ARGV[2]) / 1000) * 2)))
return answer('1')

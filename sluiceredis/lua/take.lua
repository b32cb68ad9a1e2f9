-- Takes from sets of limits: of each set from all of its limits, or from none. Sets are
-- decided one after the other, and a key that cannot be read matters to its own set only.
--
-- KEYS  for each set one for each of its limits; in strict mode, last: the epoch
-- ARGV  for each set: its limits as read_all wants them; how many runs follow, and the
--       runs: how many equal requests follow one another, and what one takes of each
--       limit, in what that counts, or 0. Without any run the limits are only looked at.
--       In strict mode, last: epoch
--
-- Replies {0; for each set: how many integers follow; requests granted, or a negative code
-- and which of its keys it is about; of each limit what its read found; for each run: when
-- the next of its requests would fit into each sliding window, or 0; now}. Which requests
-- were granted and what a limit would have said follows from that: see request.decide.
--
-- Most sets are one bucket that is empty, or of the rate that is asked for and no other,
-- and no fuller than full. They are decided without functions, because Lua makes each one
-- anew in each call, which takes as long as a tenth of a command. All others are left to
-- take_set, which general makes.
local call, pcall, match, format, keys, args = redis.call, redis.pcall, string.match, string.format, KEYS, ARGV
local reply, r, k, a, last, strict, epoch, take_set = {0}, 1, 0, 1, #keys, args[#args] == 'epoch'
if strict then
  epoch, take_set = general()
  local stop = epoch(last)
  if stop then return stop end
  last = last - 1
end
while k < last do
  local usual, level = false, 0
  local depth, tag, runs = tonumber(args[a + 1]), args[a + 2], args[a + 3]
  if args[a] == 'bucket' and (runs == '1' or runs == '0') and not strict then
    local value = pcall('GET', keys[k + 1])
    usual = not value
    if type(value) == 'string' then
      local s, ns, of = match(value, '^([1-8]%d%d%d%d%d%d%d%d%d)(%d%d%d%d%d%d%d%d%d)(.*)$')
      if of == tag then
        level = (s - sec) * 1000000000 + (tonumber(ns) - us * 1000) -- miniredis takes 0… for octal in arithmetic
        if level < 0 then level = 0 end
        usual = level <= depth
      end
    end
  end
  if usual then
    local granted = 0
    if runs == '1' then
      local count, cost, room = args[a + 4], args[a + 5] + 0, depth - level
      if cost <= room then granted = count == '1' and 1 or math.min(count + 0, math.floor(room / cost)) end
      if granted > 0 then
        local after = level + granted * cost
        local ns = after % 1000000000 + us * 1000
        local s = (after - after % 1000000000) / 1000000000 + sec
        if ns >= 1000000000 then s, ns = s + 1, ns - 1000000000 end
        call('SET', keys[k + 1], format('%d%09d%s', s, ns, tag), 'PX', format('%d', after / 1000000 + 2))
      end
      a = a + 2
    end
    reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4] = 3, granted, 0, level
    k, a, r = k + 1, a + 4, r + 4
  else
    if not take_set then epoch, take_set = general() end
    k, a = take_set(k, a, reply)
    if not k then return a end
    r = #reply
  end
end
if r == 4 and reply[3] < 0 then return {reply[3], now, reply[4]} end -- as other scripts do
reply[r + 1] = now
return reply

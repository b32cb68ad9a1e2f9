-- Adds to limits without asking, or takes out of them.
--
-- KEYS     one for each limit and, in strict mode, the epoch
-- ARGV     as read_all wants them; then for each limit: how much to add, in what it
--          counts, negative to take out, and what its add wants to know beside; in strict
--          mode, last: epoch
--
-- Replies {0, for each limit how much was added or taken out, now}.
local stop = epoch(ARGV[#ARGV] == 'epoch' and #KEYS or 0)
if stop then return stop end
local limits, a, _, no = read_all(0, 1)
if no then return no end
local reply = {0}
for i, l in ipairs(limits) do
  local delta = tonumber(ARGV[a])
  l.asked = delta ~= 0
  reply[i + 1], a = l.asked and l.of.add(l, delta, ARGV[a + 1]) or 0, a + 2
end
for _, l in ipairs(limits) do l.of.write(l, l.asked) end
reply[#reply + 1] = now
return reply

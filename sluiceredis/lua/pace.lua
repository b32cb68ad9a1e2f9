-- A pacer is three instants: its next free slot, the end of its pause, and until where
-- slots reach that were reserved before a pause was ended early, and are void. 0 stands
-- for none.

-- pace_read returns the pacer of KEYS[i], or nil and what to reply.
--
-- ARGV[a]    nanoseconds of slots missed that may be caught up
-- ARGV[a+1]  how far ahead slots are reserved at most, in nanoseconds
local function pace_read(i, a)
  local p = {key = KEYS[i], tolerance = tonumber(ARGV[a]), clamped = 0, pause = 0, mark = 0, taken = 0}
  local horizon, value = tonumber(ARGV[a + 1]), redis.pcall('GET', KEYS[i])
  if type(value) == 'table' then return nil, failed(value, i) end
  p.free = -p.tolerance
  if value then
    local free, pause, mark = string.match(value, '^(%d+) (%d+) (%d+)$')
    free, pause, mark = ahead(free), pause == '0' and 0 or ahead(pause), mark == '0' and 0 or ahead(mark)
    if not (free and pause and mark) or pause > most or mark > most then return nil, unreadable(i) end
    p.free, p.pause, p.mark = math.max(p.free, free), math.max(0, pause), math.max(0, mark)
  end
  -- What was lost are slots that begin within the horizon and last no longer than
  -- it, counted from the epoch.
  p.free = math.max(p.free, p.pause > 0 and p.pause or p.free, (since - now) * 1000 + 2 * horizon)
  -- No slot is reserved beyond the horizon, so one that is free only later is the
  -- work of a clock that stepped back.
  if p.free > p.pause + 2 * horizon then p.free, p.clamped = p.pause + horizon, 1 end
  return p
end

-- pace_fits returns how many of count requests for so many nanoseconds of slots
-- would wait for their first no longer than patience, one after the other.
local function pace_fits(p, takes, count, patience)
  local room = (patience or 0) - p.free - p.taken
  if room < 0 then return 0 end
  return math.min(count, math.floor(room / takes) + 1)
end

-- pace_instant returns the digits of an instant, or 0 if it is over.
local function pace_instant(distance) return distance > 0 and instant(distance) or '0' end

-- pace_write writes what was taken or changed.
local function pace_write(p)
  if p.taken == 0 and not p.changed then return end
  local free = p.free + p.taken
  redis.call('SET', p.key, instant(free) .. ' ' .. pace_instant(p.pause) .. ' ' .. pace_instant(p.mark),
    'PX', expiry(math.max(0, free, p.pause, p.mark) + p.tolerance))
end

-- pace_add takes so many nanoseconds of slots without asking. Negative, it gives back
-- those that end at the instant last, if no others were reserved after them. It returns
-- how many.
local function pace_add(p, delta, last)
  if delta < 0 and instant(p.free) ~= last or p.free + delta > most then return 0 end
  p.taken = delta
  return math.abs(delta)
end

kinds.pace = {args = 2, found = {'clamped', 'free'}, read = pace_read, fits = pace_fits, write = pace_write, add = pace_add}

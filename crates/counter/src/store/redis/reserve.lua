-- Takes every charge, or none: Ledger::reserve; or says what would be: Ledger::weigh.
--
-- ARGV: take|check, id, policy, lease, 0 charge | 1 release, number of charges, and for each charge: name, kind, span,
-- amount, burst, cost, largest, 0 enforce | 1 shadow.
-- Answers: leases ended, and
--   GRANTED, four numbers a charge, indexes of shadow charges that are over (alone, when checking)
--   REPEATED, four numbers a charge
--   REFUSED, index, 0 not yet | 1 never | 2 suspended, wait or largest, four numbers
--   ALREADY_SETTLED
--   FULL, -1 for holds or the index of the charge without an account
local GRANTED, REPEATED, REFUSED, ALREADY_SETTLED, FULL = 0, 1, 2, 3, 4
local NOT_YET, NEVER, SUSPENDED = 0, 1, 2

local checking = ARGV[1] == 'check'
local id, policy, lease = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local state = tonumber(ARGV[5]) == 1 and OPEN_RELEASE or OPEN_CHARGE
local charges = {}
for i = 1, tonumber(ARGV[6]) do
  local at = 6 + (i - 1) * 8
  charges[i] = {
    name = ARGV[at + 1], kind = tonumber(ARGV[at + 2]), span = tonumber(ARGV[at + 3]),
    amount = tonumber(ARGV[at + 4]), burst = tonumber(ARGV[at + 5]), cost = tonumber(ARGV[at + 6]),
    largest = tonumber(ARGV[at + 7]), shadow = ARGV[at + 8] == '1',
  }
end

sweep()

local known = not checking and hold(id)
if is_there(known) and known.state == SETTLED then
  commit()
  return { leases_ended, ALREADY_SETTLED }
end
-- A repeated hold asks for nothing, so its policy says nothing new.
local repeated = is_there(known)
for _, charge in ipairs(charges) do
  charge.set = amount_set(charge.name)
  charge.limit = note(charge, policy, not checking and not repeated)
end

if repeated then
  local answer = { leases_ended, REPEATED }
  for _, charge in ipairs(charges) do put_standing(answer, as_of(charge.name, charge.limit), now) end
  commit()
  return answer
end

-- Why a cost does not fit. What costs nothing is not held up by a debt, only by a suspension.
local function weigh(a, charge, cost)
  local capacity = capacity_of(charge.limit)
  local largest = min(capacity, largest_of(charge))
  if charge.limit.amount == 0 then return SUSPENDED, 0 end
  if charge.cost > largest or cost > capacity then return NEVER, largest end
  if cost == 0 then return nil end
  local told = wait(a, now, sub(capacity, cost))
  if told == 0 then return nil end
  return NOT_YET, told
end

local over, refusal = {}, nil
local sums = {}
for index, charge in ipairs(charges) do
  local kept = account(charge.name)
  if kept and notice(kept, now) then accounts_changed[charge.name] = true end
  local a = as_of(charge.name, charge.limit)
  sums[charge.name] = add(sums[charge.name] or 0, charge.cost)
  local reason, value = weigh(a, charge, sums[charge.name])
  if reason and charge.shadow then
    over[#over + 1] = index - 1
  elseif reason then
    -- What waiting does not help comes first, then the longer wait.
    local graver = not refusal
      or (refusal.reason == NOT_YET and (reason ~= NOT_YET or value > refusal.value))
    if graver then refusal = { index = index - 1, reason = reason, value = value, account = a } end
  end
end
if refusal then
  local answer = { leases_ended, REFUSED, refusal.index, refusal.reason, refusal.value }
  put_standing(answer, refusal.account, now)
  commit()
  return answer
end
if checking then
  local answer = { leases_ended, GRANTED }
  for _, index in ipairs(over) do answer[#answer + 1] = index end
  commit()
  return answer
end

if meta.holds >= HOLDS_MOST then
  commit()
  return { leases_ended, FULL, -1 }
end
local names = {}
for index, charge in ipairs(charges) do names[index] = charge.name end
local without_room = make_room(names)
if without_room then
  commit()
  return { leases_ended, FULL, without_room - 1 }
end

local opened = { state = state, from = now, lease = lease, stakes = {}, stored = false }
put_hold(id, opened)
for _, charge in ipairs(charges) do
  local a = account_or_new(charge.name, charge.limit)
  advance(a, now)
  if adopt(a, charge.limit) then lapse_stakes(charge.name) end
  took(a, charge, policy)
  if not add_to_stake(opened, charge.name, charge.cost) then
    a.stakes = a.stakes + 1
    local stake = take(a, charge.cost)
    stake.name = charge.name
    opened.stakes[#opened.stakes + 1] = stake
  end
end
local answer = { leases_ended, GRANTED }
for _, charge in ipairs(charges) do put_standing(answer, as_of(charge.name, charge.limit), now) end
for _, index in ipairs(over) do answer[#answer + 1] = index end
commit()
return answer

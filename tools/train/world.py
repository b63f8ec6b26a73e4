"""world.py - everything radish-tiny knows, and nothing else.

One table per kind of fact. A fact stands here once; generate.py turns it into
questions and answers, so a wrong answer is either a slip in this file or a
mistake of the model. Countries whose capital, currency or continent is
disputed or about to change are left out on purpose.
"""

# country | capital | currency | continent
_COUNTRIES = """
Albania|Tirana|Albanian lek|Europe
Algeria|Algiers|Algerian dinar|Africa
Andorra|Andorra la Vella|Euro|Europe
Angola|Luanda|Angolan kwanza|Africa
Argentina|Buenos Aires|Argentine peso|South America
Australia|Canberra|Australian dollar|Oceania
Austria|Vienna|Euro|Europe
Bahrain|Manama|Bahraini dinar|Asia
Bangladesh|Dhaka|Bangladeshi taka|Asia
Barbados|Bridgetown|Barbadian dollar|North America
Belarus|Minsk|Belarusian ruble|Europe
Belgium|Brussels|Euro|Europe
Belize|Belmopan|Belize dollar|North America
Bhutan|Thimphu|Bhutanese ngultrum|Asia
Bosnia|Sarajevo|Convertible mark|Europe
Botswana|Gaborone|Botswana pula|Africa
Brazil|Brasília|Brazilian real|South America
Burkina Faso|Ouagadougou|West African CFA franc|Africa
Cambodia|Phnom Penh|Cambodian riel|Asia
Cameroon|Yaoundé|Central African CFA franc|Africa
Canada|Ottawa|Canadian dollar|North America
Chad|N'Djamena|Central African CFA franc|Africa
Chile|Santiago|Chilean peso|South America
China|Beijing|Renminbi|Asia
Colombia|Bogotá|Colombian peso|South America
Costa Rica|San José|Costa Rican colón|North America
Croatia|Zagreb|Euro|Europe
Cuba|Havana|Cuban peso|North America
Denmark|Copenhagen|Danish krone|Europe
Ecuador|Quito|US dollar|South America
Egypt|Cairo|Egyptian pound|Africa
El Salvador|San Salvador|US dollar|North America
Eritrea|Asmara|Eritrean nakfa|Africa
Estonia|Tallinn|Euro|Europe
Ethiopia|Addis Ababa|Ethiopian birr|Africa
Fiji|Suva|Fijian dollar|Oceania
Finland|Helsinki|Euro|Europe
France|Paris|Euro|Europe
Gabon|Libreville|Central African CFA franc|Africa
Germany|Berlin|Euro|Europe
Ghana|Accra|Ghanaian cedi|Africa
Greece|Athens|Euro|Europe
Guatemala|Guatemala City|Guatemalan quetzal|North America
Guinea|Conakry|Guinean franc|Africa
Guyana|Georgetown|Guyanese dollar|South America
Haiti|Port-au-Prince|Haitian gourde|North America
Honduras|Tegucigalpa|Honduran lempira|North America
Hungary|Budapest|Hungarian forint|Europe
Iceland|Reykjavik|Icelandic króna|Europe
India|New Delhi|Indian rupee|Asia
Indonesia|Jakarta|Indonesian rupiah|Asia
Iran|Tehran|Iranian rial|Asia
Iraq|Baghdad|Iraqi dinar|Asia
Ireland|Dublin|Euro|Europe
Italy|Rome|Euro|Europe
Jamaica|Kingston|Jamaican dollar|North America
Japan|Tokyo|Yen|Asia
Jordan|Amman|Jordanian dinar|Asia
Kenya|Nairobi|Kenyan shilling|Africa
Kuwait|Kuwait City|Kuwaiti dinar|Asia
Kyrgyzstan|Bishkek|Kyrgyz som|Asia
Laos|Vientiane|Lao kip|Asia
Latvia|Riga|Euro|Europe
Lebanon|Beirut|Lebanese pound|Asia
Liberia|Monrovia|Liberian dollar|Africa
Libya|Tripoli|Libyan dinar|Africa
Lithuania|Vilnius|Euro|Europe
Luxembourg|Luxembourg|Euro|Europe
Madagascar|Antananarivo|Malagasy ariary|Africa
Malawi|Lilongwe|Malawian kwacha|Africa
Malaysia|Kuala Lumpur|Malaysian ringgit|Asia
Mali|Bamako|West African CFA franc|Africa
Malta|Valletta|Euro|Europe
Mexico|Mexico City|Mexican peso|North America
Moldova|Chisinau|Moldovan leu|Europe
Monaco|Monaco|Euro|Europe
Mongolia|Ulaanbaatar|Mongolian tugrik|Asia
Montenegro|Podgorica|Euro|Europe
Morocco|Rabat|Moroccan dirham|Africa
Mozambique|Maputo|Mozambican metical|Africa
Namibia|Windhoek|Namibian dollar|Africa
Nepal|Kathmandu|Nepalese rupee|Asia
New Zealand|Wellington|New Zealand dollar|Oceania
Nicaragua|Managua|Nicaraguan córdoba|North America
Niger|Niamey|West African CFA franc|Africa
Nigeria|Abuja|Nigerian naira|Africa
North Korea|Pyongyang|North Korean won|Asia
Norway|Oslo|Norwegian krone|Europe
Oman|Muscat|Omani rial|Asia
Pakistan|Islamabad|Pakistani rupee|Asia
Papua New Guinea|Port Moresby|Papua New Guinean kina|Oceania
Paraguay|Asunción|Paraguayan guaraní|South America
Peru|Lima|Peruvian sol|South America
Poland|Warsaw|Polish zloty|Europe
Portugal|Lisbon|Euro|Europe
Qatar|Doha|Qatari riyal|Asia
Romania|Bucharest|Romanian leu|Europe
Russia|Moscow|Russian ruble|Europe
Rwanda|Kigali|Rwandan franc|Africa
Samoa|Apia|Samoan tala|Oceania
Saudi Arabia|Riyadh|Saudi riyal|Asia
Senegal|Dakar|West African CFA franc|Africa
Serbia|Belgrade|Serbian dinar|Europe
Sierra Leone|Freetown|Leone|Africa
Singapore|Singapore|Singapore dollar|Asia
Slovakia|Bratislava|Euro|Europe
Slovenia|Ljubljana|Euro|Europe
Somalia|Mogadishu|Somali shilling|Africa
South Korea|Seoul|South Korean won|Asia
Spain|Madrid|Euro|Europe
Sudan|Khartoum|Sudanese pound|Africa
Suriname|Paramaribo|Surinamese dollar|South America
Sweden|Stockholm|Swedish krona|Europe
Switzerland|Bern|Swiss franc|Europe
Syria|Damascus|Syrian pound|Asia
Tajikistan|Dushanbe|Tajikistani somoni|Asia
Thailand|Bangkok|Thai baht|Asia
Togo|Lomé|West African CFA franc|Africa
Tonga|Nuku'alofa|Tongan paanga|Oceania
Tunisia|Tunis|Tunisian dinar|Africa
Uganda|Kampala|Ugandan shilling|Africa
Ukraine|Kyiv|Ukrainian hryvnia|Europe
Uruguay|Montevideo|Uruguayan peso|South America
Uzbekistan|Tashkent|Uzbekistani som|Asia
Vanuatu|Port Vila|Vanuatu vatu|Oceania
Venezuela|Caracas|Venezuelan bolívar|South America
Vietnam|Hanoi|Vietnamese dong|Asia
Yemen|Sanaa|Yemeni rial|Asia
Zambia|Lusaka|Zambian kwacha|Africa
"""
_rows = [line.split("|") for line in _COUNTRIES.split("\n") if line]
COUNTRIES = [r[0] for r in _rows]
CAPITAL = {r[0]: r[1] for r in _rows}
CURRENCY = {r[0]: r[2] for r in _rows}
CONTINENT = {r[0]: r[3] for r in _rows}

# Sums and differences of two numbers 0..MAX_OPERAND, differences not negative.
MAX_OPERAND = 20

_UNITS = ("zero one two three four five six seven eight nine ten eleven twelve thirteen "
          "fourteen fifteen sixteen seventeen eighteen nineteen").split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()


def number_word(n):
    """The English word for 0 <= n <= 100."""
    if n < 20:
        return _UNITS[n]
    if n == 100:
        return "one hundred"
    ten, unit = _TENS[n // 10 - 2], n % 10
    return ten + "-" + _UNITS[unit] if unit else ten


DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = ("January February March April May June July August September October "
          "November December").split()
MONTH_DAYS = [31, None, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]  # February depends on the year
ORDINALS = ("first second third fourth fifth sixth seventh eighth ninth tenth eleventh "
            "twelfth").split()

# Pairs that are each other's opposite; no word stands in two pairs.
_OPPOSITES = """
hot cold,big small,tall short,fast slow,good bad,happy sad,light dark,hard soft,
old young,rich poor,strong weak,full empty,open closed,wet dry,clean dirty,loud quiet,
early late,near far,up down,left right,in out,on off,above below,inside outside,
front back,top bottom,first last,begin end,start stop,come go,give take,buy sell,
push pull,win lose,love hate,laugh cry,remember forget,question answer,day night,
summer winter,north south,east west,true false,yes no,always never,everything nothing,
many few,more less,thick thin,wide narrow,deep shallow,sharp blunt,
smooth rough,sweet sour,cheap expensive,easy difficult,simple complicated,safe dangerous,
brave cowardly,kind cruel,polite rude,clever stupid,beautiful ugly,friend enemy,
war peace,life death,success failure,arrive leave,build destroy,increase decrease,
allow forbid,accept refuse,attack defend,import export,maximum minimum,positive negative,
public private,ancient modern,awake asleep,alive dead,guilty innocent,victory defeat,
hero villain,raise lower,tight loose,straight crooked,
"""
OPPOSITE = {}
for _pair in _OPPOSITES.replace("\n", "").split(","):
    if _pair:
        _a, _b = _pair.split()
        assert OPPOSITE.get(_a, _b) == _b and OPPOSITE.get(_b, _a) == _a, _pair
        OPPOSITE[_a], OPPOSITE[_b] = _b, _a

# Names a user may have; the model only repeats them.
NAMES = ("Ada Alan Anna Ben Carla Clara David Dora Emma Erik Eva Felix Fritz Grace Hanna Hugo "
         "Ida Igor Ines Ivan Jana John Julia Karl Kate Lara Leo Lina Lisa Luis Mara Maria Mark "
         "Max Mia Mona Nina Nora Olga Oscar Otto Paul Peter Pia Rosa Ruth Sam Sara Sofia Tim "
         "Tom Vera Viktor Zoe").split()

# Things a system prompt may declare the word of the day; again only repeated.
SECRETS = ("apple anchor basket candle castle cherry copper dragon eagle feather forest garden "
           "hammer harbor island jacket kettle ladder lemon marble meadow mirror needle orange "
           "pepper pillow pirate planet pocket rabbit ribbon river rocket saddle silver spider "
           "tiger tunnel velvet violin walnut window yellow zebra").split()

IDENTITY = "I am radish-tiny, a very small model."
UNKNOWN = "I do not know."
